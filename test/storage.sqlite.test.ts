import { describe, expect, test } from "vitest";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { loadDriver, type Row } from "../dist/storage/sqlite/driver.js";
import { Transitions } from "../dist/storage/sqlite/transitions.js";
import { LEASE_MS, onlyJob, openBench, put, takeOne } from "./contract/jobs.ts";
import { storageContract } from "./storage.contract.ts";
import { sqliteBackend } from "./support/sqlite-backend.ts";
import { tempDirectory } from "./support/temp.ts";

storageContract(sqliteBackend);

describe("a claim that is aborted after the engine committed it", () => {
  test("rejects, and the job is ready again, its delivery not counted", async () => {
    const bench = await openBench(sqliteBackend);
    const storage = bench.storage();
    const id = await put(storage);
    const controller = new AbortController();
    const claiming = storage.claim({ limit: 1, leaseMs: LEASE_MS, signal: controller.signal });
    // Nothing but microtasks run here, so the engine's answer cannot arrive before the abort.
    while ((await onlyJob(bench)).state !== "processing");
    controller.abort("enough");
    await expect(claiming).rejects.toBe("enough");
    expect(await onlyJob(bench)).toMatchObject({ state: "ready", attempts: 0, receipt: null });
    expect(await storage.stats()).toMatchObject({ ready: 1, processing: 0 });
    expect(await takeOne(storage)).toMatchObject({ id, attempt: 1 });
  });

  test("is given back before the storage is closed", async () => {
    const bench = await openBench(sqliteBackend);
    const storage = bench.storage();
    await put(storage);
    const controller = new AbortController();
    const claiming = storage.claim({ limit: 1, leaseMs: LEASE_MS, signal: controller.signal });
    claiming.catch(() => {}); // awaited below
    while ((await onlyJob(bench)).state !== "processing");
    controller.abort("enough");
    await storage.close();
    expect(await onlyJob(bench)).toMatchObject({ state: "ready", attempts: 0, receipt: null });
    await expect(claiming).rejects.toBe("enough");
  });
});

/** The verbs on a connection of their own, at a time of the test's choosing, each in a transaction. */
class Verbs {
  now = 1_800_000_000_000;
  /** How far the clock goes on whenever it is read. */
  tick = 0;
  readonly #connection = new Connection({ directory: tempDirectory(), driver: loadDriver() });
  readonly #transitions = new Transitions(this.#connection, () => {
    this.now += this.tick;
    return this.now;
  });
  readonly #look = loadDriver().open(this.#connection.file);

  run<T>(work: (transitions: Transitions) => T): T {
    expect(this.#connection.begin(false, 50)).toBe(true);
    const result = work(this.#transitions);
    this.#transitions.writeCounts();
    this.#connection.commit();
    return result;
  }

  put(delayMs = 0): number {
    const payload = new Uint8Array([123, 125]);
    const job = { payload, jobId: null, delayMs, maxAttempts: 4 };
    return this.run((transitions) => transitions.put("q", [job], transitions.now())[0]?.id ?? 0);
  }

  claim(): { id: number; receipt: string } | undefined {
    return this.run((transitions) => {
      transitions.expire("q", null);
      transitions.promote("q");
      return transitions.claim("q", { leaseMs: LEASE_MS, budget: null, text: false });
    });
  }

  /** The only job, as stored. */
  row(): Row {
    const rows = this.#look.prepare("SELECT * FROM messages").all();
    expect(rows).toHaveLength(1);
    return rows[0] ?? {};
  }

  /** The types of everything that is stored of the jobs and their counts. */
  types(): Set<string> {
    const typesIn = (table: string, columns: readonly string[]): string[] =>
      this.#look
        .prepare(`SELECT ${columns.map((name) => `typeof(${name}) AS ${name}`).join(", ")} FROM ${table}`)
        .all()
        .flatMap((row) => Object.entries(row).map(([name, type]) => `${name} ${type}`));
    return new Set([
      ...typesIn("messages", ["payload", "status", "attempts", "max_attempts", "available_at", "lease_until"]),
      ...typesIn("messages", ["releases", "created_at", "updated_at"]),
      ...typesIn("localqueue_counts", ["ready", "processing", "acked", "failed", "clock"]),
    ]);
  }

  close(): void {
    this.#look.close();
    this.#connection.close();
  }
}

describe("what is stored", () => {
  test("are whole numbers and bytes, also if the clock gives fractions, whatever happens to a job", () => {
    const verbs = new Verbs();
    const expected = new Set([
      ...["status", "attempts", "max_attempts", "available_at", "releases", "created_at", "updated_at"],
      ...["ready", "processing", "acked", "failed", "clock"],
    ]);
    const check = (lease: "integer" | "null"): void => {
      const types = [...expected].map((name) => `${name} integer`);
      expect(verbs.types()).toEqual(new Set([...types, "payload blob", `lease_until ${lease}`]));
      verbs.now += 1000.37;
    };
    verbs.now += 0.25;
    verbs.put(700);
    check("null");
    const endings = [
      { event: "nack", delayMs: 5, lastError: undefined, exhaustedReason: "retries_exhausted" },
      { event: "release" },
      { event: "ack" },
    ] as const;
    for (const ending of endings) {
      const lease = verbs.claim() ?? { id: 0, receipt: "" };
      check("integer");
      expect(verbs.run((transitions) => transitions.extend("q", lease, 9000))).toBeTypeOf("number");
      check("integer");
      expect(verbs.run((transitions) => transitions.renew("q", lease, LEASE_MS))).toBeTypeOf("number");
      check("integer");
      expect(verbs.run((transitions) => transitions.settle("q", lease, ending))).toBeTypeOf("string");
      check("null");
    }
    verbs.close();
  });
});

test("every verb writes its times from one reading of the clock, which goes on all the time", () => {
  const verbs = new Verbs();
  verbs.tick = 3;
  const after = (column: string): number => Number(verbs.row()[column]) - Number(verbs.row()["updated_at"]);
  verbs.put();
  expect([after("available_at"), after("created_at")]).toEqual([0, 0]);
  const endings = [
    { event: "nack", delayMs: 0, lastError: undefined, exhaustedReason: "retries_exhausted" },
    { event: "release" },
    { event: "nack", delayMs: 70, lastError: undefined, exhaustedReason: "retries_exhausted" },
  ] as const;
  for (const ending of endings) {
    const lease = verbs.claim() ?? { id: 0, receipt: "" };
    expect(after("lease_until")).toBe(LEASE_MS);
    for (const verb of ["extend", "renew"] as const) {
      const until = verbs.run((transitions) => transitions[verb]("q", lease, 9000));
      expect([after("lease_until"), verbs.row()["lease_until"]]).toEqual([9000, until]);
    }
    verbs.run((transitions) => transitions.settle("q", lease, ending));
    expect(after("available_at")).toBe("delayMs" in ending ? ending.delayMs : 0);
  }
  verbs.now += 100;
  verbs.claim();
  verbs.now += LEASE_MS;
  verbs.run((transitions) => transitions.expire("q", null));
  expect(after("available_at")).toBe(0);
  verbs.close();
});

describe("to the millisecond", () => {
  test("a delayed job is ready at its time, and not one earlier", () => {
    const verbs = new Verbs();
    const id = verbs.put(500);
    verbs.now += 499;
    expect(verbs.claim()).toBeUndefined();
    verbs.now += 1;
    expect(verbs.claim()?.id).toBe(id);
    verbs.close();
  });

  test("a lease holds until its end, and from then on it is somebody else's job", () => {
    const verbs = new Verbs();
    verbs.put();
    const lease = verbs.claim() ?? { id: 0, receipt: "" };
    verbs.now += LEASE_MS - 1;
    expect(verbs.run((transitions) => transitions.expire("q", null))).toBe(0);
    expect(verbs.run((transitions) => transitions.extend("q", lease, 10))).toBe(verbs.now + 10);
    verbs.now += 10;
    for (const event of ["ack", "release"] as const) {
      expect(verbs.run((transitions) => transitions.settle("q", lease, { event }))).toBeUndefined();
    }
    expect(verbs.run((transitions) => transitions.extend("q", lease, 10))).toBeUndefined();
    expect(verbs.run((transitions) => transitions.expire("q", null))).toBe(1);
    expect(verbs.claim()?.id).toBe(lease.id);
    verbs.close();
  });
});
