import { StorageError } from "../../errors.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import type { Storage, StorageSettings } from "../storage.ts";

/** Takes the place of the storage until that is merged. */
export function openPostgresStorage(_: PostgresTarget, __: StorageSettings): Storage {
  throw new StorageError("BAD_LOCATION", "The PostgreSQL storage is not there yet.");
}
