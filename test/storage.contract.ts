import { describe } from "vitest";
import { capacityContract } from "./contract/capacity.ts";
import { careContract } from "./contract/care.ts";
import { claimingContract } from "./contract/claiming.ts";
import { dispatchingContract } from "./contract/dispatching.ts";
import { emittingContract } from "./contract/emitting.ts";
import { lookingContract } from "./contract/looking.ts";
import { puttingContract } from "./contract/putting.ts";
import { releasingContract } from "./contract/releasing.ts";
import { removingContract } from "./contract/removing.ts";
import { transitionsContract } from "./contract/transitions.ts";
import { waitingContract } from "./contract/waiting.ts";
import type { Backend } from "./support/backend.ts";

/** What every storage promises, whatever the database: run by one test file per backend. */
export function storageContract(backend: Backend): void {
  describe(`a ${backend.name} storage`, () => {
    transitionsContract(backend);
    puttingContract(backend);
    dispatchingContract(backend);
    emittingContract(backend);
    releasingContract(backend);
    claimingContract(backend);
    careContract(backend);
    waitingContract(backend);
    lookingContract(backend);
    removingContract(backend);
    capacityContract(backend);
  });
}
