import { setTimeout as sleep } from "node:timers/promises";
import { DeduplicationConflictError, LeaseExpiredError, StorageError } from "localqueue";
import { describe, expect, test } from "vitest";
import { ConsumerLoop, type Ending, type Work } from "../dist/consumer-loop.js";
import type { JobState } from "../dist/state.js";
import type { Consumer, ConsumerListener, Delivery, Storage } from "../dist/storage/storage.js";
import { until } from "./support/until.ts";
import { gate } from "./support/worker.ts";

/**
 * What a real database does too rarely to wait for: unknown outcomes, and deliveries that were given back before they
 * were started. The storage is a script; all else is tested on real files.
 */
class Script {
  /** What the loop asked for, and told its work, in order. */
  readonly log: string[] = [];
  readonly settlements: (() => JobState)[] = [];
  /** How long the claims were to wait. */
  readonly waits: number[] = [];
  /** Of claims. */
  readonly faults: Error[] = [];
  readonly refusals: ((job: number) => Ending | undefined)[] = [];
  /** What the handler returns. */
  handling: unknown;
  starts = true;
  listener: ConsumerListener | undefined;
  #delivered = 0;

  constructor(deliveries: number) {
    this.deliveries = deliveries;
  }
  readonly deliveries: number;

  get storage(): Storage {
    const consumer: Consumer = {
      claim: (_, { waitMs, signal }) => {
        this.log.push("claim");
        this.waits.push(waitMs);
        const fault = this.faults.shift();
        if (fault !== undefined) return Promise.reject(fault);
        if (this.#delivered < this.deliveries) return Promise.resolve(delivery(++this.#delivered));
        if (waitMs < Number.POSITIVE_INFINITY) return sleep(waitMs).then(() => undefined);
        return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
      },
      start: () => {
        if (!this.starts) this.log.push("not started");
        return this.starts;
      },
      settle: async (_, { id }, { event }) => {
        this.log.push(`${event} ${id}`);
        return (this.settlements.shift() ?? (() => "acked" as const))();
      },
      close: () => this.log.push("close"),
    };
    return {
      consume: (_: unknown, listener: ConsumerListener) => {
        this.listener = listener;
        return consumer;
      },
    } as unknown as Storage;
  }

  get work(): Work<number> {
    return {
      open: ({ id }) => id,
      unreadable: () => ({ event: "release" }),
      handle: (job) => {
        this.log.push(`handle ${job}`);
        return this.handling;
      },
      conclude: async (): Promise<Ending> => ({ settlement: { event: "ack" }, error: undefined }),
      settled: () => {},
      dropped: (job) => this.log.push(`${job} is dropped`),
      refused: (job) => this.refusals.shift()?.(job),
      concluded: (job, _, state) => this.log.push(`${job} is ${state}`),
      leaseLost: (job) => this.log.push(`${job} is lost`),
      leaseRenewed: () => {},
      troubled: () => this.log.push("trouble"),
    };
  }
}

function delivery(id: number): Delivery {
  const receipt = `receipt ${id}`;
  return {
    id,
    receipt,
    payload: new Uint8Array(),
    attempt: 1,
    jobId: undefined,
    leaseUntil: 0,
    enqueuedAt: 0,
    context: undefined,
  };
}

const settings = {
  slots: 1,
  leaseMs: 1_000,
  heartbeatMs: 300,
  timeoutMs: undefined,
  graceMs: 1_000,
  maxAttempts: undefined,
};

/** Runs a loop on the script until it has logged `last`, or stops it right after its start. */
async function play(script: Script, last?: string): Promise<string[]> {
  const loop = new ConsumerLoop(script.storage, settings, script.work);
  const running = loop.run();
  if (last !== undefined) await until(() => script.log.includes(last));
  await loop.stop();
  await running;
  expect(script.log.pop()).toBe("close");
  return script.log;
}

const failing = (error: Error) => (): never => {
  throw error;
};
const unknown = new StorageError("IO", "The commit failed.", { outcome: "unknown" });

test("an outcome and the next claim are asked for together, before either is answered", async () => {
  const log = await play(new Script(2), "2 is acked");
  expect(log).toEqual([
    "claim",
    "handle 1",
    "ack 1",
    "claim",
    "1 is acked",
    "handle 2",
    "ack 2",
    "claim",
    "2 is acked",
  ]);
});

test("a delivery that was given back before it was started is dropped without a word", async () => {
  const script = new Script(1);
  script.starts = false;
  expect(await play(script, "not started")).toEqual(["claim", "not started", "claim"]);
});

test("a delivery that arrives after the stop is given back, not begun", async () => {
  expect(await play(new Script(1))).toEqual(["claim", "release 1"]);
});

describe("an outcome whose fate is unknown", () => {
  test("is asked for again, and recorded", async () => {
    const script = new Script(1);
    script.settlements.push(failing(unknown));
    const log = await play(script, "1 is acked");
    expect(log).toEqual(["claim", "handle 1", "ack 1", "claim", "trouble", "ack 1", "1 is acked"]);
  });

  test("is not taken for a lost lease when it had come true", async () => {
    const script = new Script(1);
    script.settlements.push(failing(unknown), failing(new LeaseExpiredError("over")));
    const log = await play(script, "trouble");
    expect(log).toEqual(["claim", "handle 1", "ack 1", "claim", "trouble", "ack 1", "1 is dropped"]);
  });

  test("keeps its slot from beginning anything else", async () => {
    const script = new Script(2);
    script.settlements.push(failing(unknown));
    const log = await play(script, "2 is acked");
    expect(log.indexOf("handle 2")).toBeGreaterThan(log.indexOf("1 is acked"));
  });
});

test("an outcome that certainly failed is a lost lease when the lease is over afterwards", async () => {
  const script = new Script(1);
  script.settlements.push(
    failing(new StorageError("DISK_FULL", "Full.", { outcome: "failed" })),
    failing(new LeaseExpiredError("over")),
  );
  const log = await play(script, "1 is lost");
  expect(log).toEqual(["claim", "handle 1", "ack 1", "claim", "trouble", "ack 1", "1 is lost"]);
});

describe("a settlement that the storage refuses for good", () => {
  const conflict = new DeduplicationConflictError("another one is there");
  const instead: Ending = {
    settlement: { event: "fail", lastError: "no", reason: "permanent_handler_error", category: undefined },
    error: conflict,
  };

  test("becomes what the work says instead, and is told as that", async () => {
    const script = new Script(1);
    script.settlements.push(failing(conflict), () => "failed");
    script.refusals.push(() => instead);
    const log = await play(script, "1 is failed");
    expect(log).toEqual(["claim", "handle 1", "ack 1", "claim", "fail 1", "1 is failed"]);
  });

  test("stays what the work said while faults are waited out", async () => {
    const script = new Script(1);
    script.settlements.push(failing(conflict), failing(unknown), () => "failed");
    script.refusals.push(() => instead);
    const log = await play(script, "1 is failed");
    expect(log).toEqual(["claim", "handle 1", "ack 1", "claim", "fail 1", "trouble", "fail 1", "1 is failed"]);
  });

  test("ends the loop with that if the work knows no answer", async () => {
    const script = new Script(2);
    script.settlements.push(failing(conflict));
    await expect(play(script, "close")).rejects.toBe(conflict);
    expect(script.log.filter((line) => line.startsWith("ack") || line === "trouble")).toEqual(["ack 1"]);
  });
});

describe("a loop that is to end when it is idle", () => {
  test("waits in one slot for as long as is left, and ends when nothing is", async () => {
    const script = new Script(1);
    const loop = new ConsumerLoop(script.storage, { ...settings, slots: 3 }, script.work);
    let left = 8;
    await loop.run({ leftMs: () => (left > 0 ? left-- : 0) });
    expect(script.log.filter((line) => line !== "claim")).toEqual(["handle 1", "ack 1", "1 is acked", "close"]);
    // Each time one look before the wait, and one after it.
    expect(script.waits.filter(Number.isFinite)).toEqual([8, 7, 5, 3, 1]);
    expect(script.waits.filter((ms) => ms === Number.POSITIVE_INFINITY)).toHaveLength(2);
  });

  test("is not idle while it handles and settles a delivery, and counts from its end", async () => {
    const script = new Script(1);
    const finish = gate();
    script.handling = finish.passed;
    const loop = new ConsumerLoop(script.storage, settings, script.work);
    const settled: number[] = [];
    script.settlements.push(() => {
      settled.push(loop.idleMs);
      return "acked";
    });
    const running = loop.run();
    await until(() => script.log.includes("handle 1"));
    const later = performance.now() + 30;
    await until(() => performance.now() > later);
    expect(loop.idleMs).toBe(0);
    finish.open();
    await until(() => script.log.includes("1 is acked"));
    expect(settled).toEqual([0]);
    expect(loop.idleMs).toBeLessThan(25);
    await until(() => loop.idleMs > 25);
    await loop.stop();
    await running;
  });

  test("is not idle while it waits out a fault of the storage", async () => {
    const script = new Script(0);
    script.faults.push(unknown);
    const loop = new ConsumerLoop(script.storage, settings, script.work);
    const running = loop.run();
    await until(() => script.log.includes("trouble"));
    const later = performance.now() + 60; // the pause takes 125 ms or more
    await until(() => performance.now() > later);
    expect(loop.idleMs).toBe(0);
    await until(() => loop.idleMs > 25);
    await loop.stop();
    await running;
  });
});
