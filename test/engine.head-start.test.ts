import { expect, test } from "vitest";
import type { ReleaseBackoff } from "../dist/storage/storage.js";
import { type Call, TestEngine } from "./support/engine-harness.ts";
import { tempDirectory } from "./support/temp.ts";

const LEFT: ReleaseBackoff = { initialMs: 1_000, maxMs: 60_000, lastError: "not mine", exhaustedReason: "no_handler" };

/** An engine that has left a job to others for a second, and whose next claim waits. */
function leave(): { engine: TestEngine; claim: Call } {
  const engine = new TestEngine({ directory: tempDirectory() });
  engine.put("job");
  const first = engine.claim();
  engine.run();
  engine.settle(first.delivery, { event: "release", backoff: LEFT });
  const claim = engine.claim({ waitMs: 60_000 });
  engine.run();
  return { engine, claim };
}

test("a job that was left to others comes back a little later than to them", () => {
  const { engine, claim } = leave();
  engine.elapse(1_000);
  engine.elapse(99);
  expect(claim.answered).toBe(false);
  engine.elapse(1);
  expect(claim.claimed).toHaveLength(1);
});

test("if one of them takes it, it does not come back, and others are not held up", () => {
  const { engine, claim } = leave();
  engine.elapse(1_000);
  const lease = engine.clock.wall + 10_000;
  engine.foreign(`UPDATE messages SET status = 1, attempts = 1, receipt = 'theirs', lease_until = ${lease},
    updated_at = ${engine.clock.wall}`);
  engine.elapse(200);
  expect(claim.answered).toBe(false);
  engine.put("another", { delayMs: 50 });
  engine.elapse(50);
  expect(claim.claimed).toMatchObject([{ id: 2 }]);
});
