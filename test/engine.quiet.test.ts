import { describe, expect, test } from "vitest";
import { SQL } from "../dist/storage/sqlite/statements.js";
import type { Delivery } from "../dist/storage/storage.js";
import { TestEngine } from "./support/engine-harness.ts";
import { FaultyDriver, sqliteError } from "./support/faulty-driver.ts";
import { tempDirectory } from "./support/temp.ts";

// A busy worker's claims follow one another, and do not look each time whether a delayed job is due or a lease ended.

const LEASE_MS = 60_000;
const SOON_MS = 5_000;
const NACK = { event: "nack", delayMs: SOON_MS, lastError: undefined, exhaustedReason: "retries_exhausted" } as const;

/** What others have before the one who left a job to them, in milliseconds. */
const HEAD_START_MS = 100;
const BACKOFF = { initialMs: SOON_MS, maxMs: LEASE_MS, lastError: "", exhaustedReason: "no_handler" } as const;

/** A queue of many ready jobs, from which one after the other is taken and acknowledged. */
class Stream {
  readonly driver: FaultyDriver = new FaultyDriver();
  readonly engine: TestEngine = new TestEngine({ directory: tempDirectory(), driver: this.driver });
  #held: Delivery | undefined;

  /** The job that becomes ready again is the first of them: it has the lowest id. */
  constructor() {
    this.engine.put("first");
    this.engine.run();
  }

  /** One whose first job is held by somebody else. */
  static withFirstHeld(): { readonly stream: Stream; readonly first: Delivery } {
    const stream = new Stream();
    const claim = stream.engine.claim({ leaseMs: LEASE_MS });
    stream.engine.run();
    return { stream: stream.fill(), first: claim.delivery };
  }

  fill(): this {
    this.engine.putMany(Array.from({ length: 100 }, (_, index) => `job ${index}`));
    this.engine.run();
    for (let i = 0; i < 3; i++) this.next();
    return this;
  }

  /** Takes the next job while the last one is acknowledged. */
  next(): string {
    const { engine } = this;
    if (this.#held !== undefined) engine.ack(this.#held);
    const claim = engine.claim({ leaseMs: LEASE_MS });
    engine.run();
    this.#held = claim.delivery;
    return engine.textOf(claim.delivery);
  }

  /** Nobody waits for a job meanwhile, so the engine does not look for one. */
  pass(ms: number): void {
    this.engine.elapse(ms);
  }
}

describe("among claims that follow one another", () => {
  test("a job is looked for once, not before each of them", () => {
    const stream = new Stream().fill();
    let looks = 0;
    stream.driver.plant({ at: SQL.look, times: Number.POSITIVE_INFINITY, strikes: () => looks++ });
    for (let i = 0; i < 20; i++) stream.next();
    expect(looks).toBeLessThan(5);
  });

  test("a delayed job comes as soon as it is due", () => {
    const { stream, first } = Stream.withFirstHeld();
    stream.engine.settle(first, NACK);
    expect(stream.next()).toMatch("job");
    stream.pass(SOON_MS);
    expect(stream.next()).toBe("first");
  });

  test("a job that was left to others for a while comes as soon as these had their head start", () => {
    const { stream, first } = Stream.withFirstHeld();
    stream.engine.settle(first, { event: "release", backoff: BACKOFF });
    expect(stream.next()).toMatch("job");
    stream.pass(SOON_MS + HEAD_START_MS);
    expect(stream.next()).toBe("first");
  });

  test("a job that was put with a delay meanwhile comes as soon as it is due", () => {
    const stream = new Stream().fill();
    // All that is ready has been taken but for what is behind it.
    stream.engine.put("delayed", { delayMs: SOON_MS });
    for (let i = 0; i < 98; i++) stream.next();
    stream.engine.putMany(["later", "last"]);
    stream.pass(SOON_MS);
    expect(stream.next()).toBe("delayed");
  });

  test("a job whose lease ended comes again", () => {
    const stream = new Stream().fill();
    const claim = stream.engine.claim({ leaseMs: SOON_MS });
    stream.engine.run();
    stream.next();
    stream.pass(SOON_MS);
    expect(stream.next()).toBe(stream.engine.textOf(claim.delivery));
  });

  test("a job whose lease was made shorter comes again when that is over", () => {
    const { stream, first } = Stream.withFirstHeld();
    stream.engine.extend(first, SOON_MS);
    expect(stream.next()).toMatch("job");
    stream.pass(SOON_MS);
    expect(stream.next()).toBe("first");
  });

  test("a job that another process delayed comes as soon as it is due", () => {
    const stream = new Stream().fill();
    const due = stream.engine.clock.wall + SOON_MS;
    stream.engine.foreign(
      `UPDATE messages SET available_at = ${due}, updated_at = ${due - SOON_MS} WHERE id = 50 AND status = 0`,
    );
    while (stream.next() !== "job 49");
    stream.pass(SOON_MS);
    expect(stream.next()).toBe("job 48");
  });

  test("a job that another process made due comes with the very next claim", () => {
    const { stream } = Stream.withFirstHeld();
    const { wall } = stream.engine.clock;
    stream.engine.foreign(`UPDATE messages SET status = 0, receipt = NULL, lease_until = NULL, available_at = ${wall - 1},
      updated_at = ${wall - 5} WHERE id = 1`);
    expect(stream.next()).toBe("first");
  });

  test("a job that became due in a transaction that was lost comes with the next", () => {
    const { stream, first } = Stream.withFirstHeld();
    stream.engine.settle(first, NACK);
    stream.next();
    stream.pass(SOON_MS);
    // The batch is lost, found missing, run once more and lost again.
    for (const after of [0, 2]) {
      stream.driver.plant({ at: "COMMIT", after, error: sqliteError("CONSTRAINT"), really: "rolls back" });
    }
    const lost = stream.engine.claim({ limit: 1000 });
    stream.engine.run();
    expect(lost.answer).toHaveProperty("error");
    expect(stream.next()).toBe("first");
  });

  test("a delayed job is not stuck when the clock is set back", () => {
    const { stream, first } = Stream.withFirstHeld();
    stream.engine.settle(first, NACK);
    stream.next();
    stream.engine.clock.wall -= 3_600_000;
    stream.next();
    stream.pass(SOON_MS);
    expect([stream.next(), stream.next()]).toContain("first");
  });
});
