import { describe, expect, onTestFinished, test } from "vitest";
import { openStorage } from "../dist/storage/location.js";
import { CommitRecord } from "../dist/storage/sqlite/commit-record.js";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { type Database, loadDriver, type Row } from "../dist/storage/sqlite/driver.js";
import { Transitions } from "../dist/storage/sqlite/transitions.js";
import type { Delivery, Storage } from "../dist/storage/storage.js";
import { LEASE_MS, put, take, takeOne } from "./contract/jobs.ts";
import { openBare, PYTHON_INDEX } from "./support/python-files.ts";
import { tempDirectory } from "./support/temp.ts";

/** A row as SQL; what is not given is as usual for a job that was put just now. */
type RowSql = { readonly [column: string]: string };

const LARGEST = "9223372036854775807";
const NOW = "(CAST(strftime('%s', 'now') AS INTEGER) * 1000)";
const USUAL: RowSql = {
  queue: "'default'",
  payload: "x'7b7d'",
  status: "0",
  attempts: "0",
  max_attempts: "4",
  available_at: `${NOW} - 5000`,
  created_at: `${NOW} - 5000`,
  updated_at: `${NOW} - 5000`,
};

describe("a row that only another program would write", () => {
  const claimable: { readonly [what: string]: RowSql } = {
    "a payload of the type TEXT": { payload: `'{"text": "ä€😀"}'` },
    "an empty payload of the type TEXT": { payload: "''" },
    "a number as payload": { payload: "17" },
    "a budget beyond all numbers": { max_attempts: LARGEST },
    "more attempts than JavaScript can count": { attempts: "9007199254740993", max_attempts: LARGEST },
    "a time of creation beyond all numbers": { created_at: LARGEST },
    "a time of creation before all times": { created_at: `-${LARGEST}` },
    "times with fractions": {
      available_at: `${NOW} - 5000.25`,
      created_at: `${NOW} - 5000.5`,
      updated_at: `${NOW} - 4999.75`,
    },
    "a delay with a fraction": { available_at: `${NOW} - 5000.25`, updated_at: `${NOW} - 6000` },
    "a time of change beyond all numbers": { updated_at: LARGEST },
    "no time at all": { available_at: "0", created_at: "0", updated_at: "0" },
    "a time from before 1970": { available_at: "-5000" },
    "times that are no numbers": { available_at: "'yesterday'", created_at: "'yesterday'", updated_at: "'yesterday'" },
    "a budget of nothing": { max_attempts: "0" },
    "an identity": { dedup_key: "'identity-00'", dedup_fingerprint: "'payload-11'" },
  };

  test.each(Object.entries(claimable))("(%s) is delivered like any other, and can be settled", async (_, row) => {
    const { storage, database } = prepare();
    const id = insert(database, row);
    const after = await put(storage);
    const [delivery, next] = (await storage.claim({ limit: 2, leaseMs: LEASE_MS })) as [Delivery, Delivery];
    expect([delivery.id, next.id]).toEqual([id, after]);
    expect(delivery.payload).toBeInstanceOf(Uint8Array);
    expect(delivery.attempt).toBeGreaterThan(0);
    expect(Number.isSafeInteger(delivery.attempt)).toBe(true);
    expect(await storage.settle(delivery, { event: "release" })).toBe("ready");
    const again = await takeOne(storage);
    expect(again.id).toBe(id);
    expect(await storage.settle(again, { event: "ack" })).toBe("acked");
    expect(await storage.stats()).toEqual({ ready: 0, processing: 1, acked: 1, failed: 0 });
  });

  test("(a payload of the type TEXT) is delivered as UTF-8", async () => {
    const { storage, database } = prepare();
    insert(database, claimable["a payload of the type TEXT"] ?? {});
    expect(Buffer.from((await takeOne(storage)).payload).toString()).toBe('{"text": "ä€😀"}');
  });

  const expired: { readonly [what: string]: RowSql } = {
    "a fraction": { lease_until: `${NOW} - 4000.5` },
    "an end before all times": { lease_until: `-${LARGEST}` },
    "a receipt of no text": { lease_until: `${NOW} - 4000`, receipt: "17" },
    "no receipt": { lease_until: `${NOW} - 4000`, receipt: "NULL" },
    "a budget beyond all numbers": { lease_until: `${NOW} - 4000`, max_attempts: LARGEST },
  };

  test.each(Object.entries(expired))("(an expired lease with %s) becomes ready again", async (_, row) => {
    const { storage, database } = prepare();
    const id = insert(database, { status: "1", attempts: "1", receipt: "'4711-1'", ...row });
    const [delivery] = await storage.claim({ limit: 1, leaseMs: LEASE_MS });
    expect(delivery).toMatchObject({ id, attempt: 2 });
  });

  test("(a lease without an end) does not keep an expired one from being noticed", async () => {
    const { storage, database } = prepare();
    insert(database, { status: "1", receipt: "'4711-1'", lease_until: "NULL" });
    const id = insert(database, { status: "1", receipt: "'4711-2'", lease_until: `${NOW} - 4000` });
    expect(await storage.claim({ limit: 1, leaseMs: LEASE_MS })).toMatchObject([{ id }]);
  });

  test("(a delay before all times) is over", async () => {
    const { storage, database } = prepare();
    const id = insert(database, { available_at: `-${LARGEST} + 1`, updated_at: `-${LARGEST}` });
    expect(await storage.claim({ limit: 1, leaseMs: LEASE_MS })).toMatchObject([{ id }]);
  });

  test("(beyond all times) keeps us neither from opening the file nor from repairing what lies in the future", async () => {
    const { directory, storage, database } = prepare();
    const hour = `${NOW} + 3600000`;
    const ahead = insert(database, { status: "1", receipt: "'4711-1'", lease_until: hour, updated_at: `${hour} - 50` });
    const delayed = insert(database, { queue: "'other'", available_at: LARGEST, updated_at: `${LARGEST} - 50` });
    insert(database, { queue: "'other'", status: "2", updated_at: LARGEST });
    await storage.close();
    const request = { limit: 1, leaseMs: LEASE_MS };
    expect(await open(directory).claim(request)).toMatchObject([{ id: ahead }]);
    expect(await open(directory, "other").claim(request)).toMatchObject([{ id: delayed }]);
  });

  const inTheWay: { readonly [what: string]: RowSql } = {
    "a lease for ever": { status: "1", lease_until: LARGEST, receipt: "'4711-1'" },
    "a lease without an end": { status: "1", lease_until: "NULL", receipt: "'4711-1'" },
    "a delay for ever": { available_at: LARGEST },
    "an unknown state": { status: "7" },
    "a state that is no number": { status: "'ready'" },
  };

  test.each(Object.entries(inTheWay))("(%s) is left alone and holds nobody up", async (_, row) => {
    const { storage, database } = prepare();
    const id = insert(database, row);
    const before = exact(database, id);
    const waiting = storage.claim({ limit: 1, leaseMs: LEASE_MS });
    await storage.stats();
    const other = await put(storage, "payload", { delayMs: 50 });
    expect(await waiting).toMatchObject([{ id: other }]);
    expect(await storage.reclaim()).toBe(0);
    expect(await take(storage)).toEqual([]);
    expect(exact(database, id)).toEqual(before);
  });
});

describe("no statement leaves a read transaction open:", () => {
  test("others can restart the -wal, and we can begin to write after they wrote", () => {
    const directory = tempDirectory();
    const connection = new Connection({ directory, driver: loadDriver() });
    const transitions = new Transitions(connection, Date.now);
    const other = openBare(directory);
    for (let i = 0; i < 10; i++) insert(other, {});
    insert(other, { available_at: `${NOW} + 60000` });
    insert(other, { available_at: `${NOW} + 70000` });

    const check = (what: string): void => {
      // Busy if anybody still reads.
      const [row] = other.prepare("PRAGMA wal_checkpoint(RESTART)").all();
      expect({ what, busy: row?.["busy"] }).toEqual({ what, busy: 0 });
      insert(other, {});
      expect({ what, began: connection.begin(false, 0) }).toEqual({ what, began: true });
      connection.rollback();
    };
    const inTransaction = <T>(what: string, work: () => T): T => {
      expect(connection.begin(false, 0)).toBe(true);
      const result = work();
      transitions.writeCounts();
      connection.commit();
      check(what);
      return result;
    };

    const { statements } = connection;
    const parameters = { queue: "default", now: Date.now(), from: 0, id: 1, receipt: "", jobId: "job", engine: 1 };
    const reads = ["look", "stats", "clock", "queues", "dataVersion", "schemaVersion", "findByJobId"] as const;
    const looks = ["recordedCommit", "totalChanges", "latestLeased", "aheadLeased", "aheadDelayed"] as const;
    for (const name of [...reads, ...looks]) {
      statements[name].all({ ...parameters, payload: new Uint8Array(0) });
      check(`${name}.all`);
      statements[name].get({ ...parameters, payload: new Uint8Array(0) });
      check(`${name}.get`);
    }
    transitions.look("default");
    check("look");
    transitions.stats("default");
    check("stats");
    connection.pollForeignCommit();
    check("pollForeignCommit");
    connection.layoutChanged();
    check("layoutChanged");
    connection.log.tend(0);
    check("checkpoint");

    const job = { payload: new Uint8Array(2), jobId: "job", delayMs: 0, maxAttempts: 4 };
    inTransaction("put", () => transitions.put("default", [job], Date.now()));
    inTransaction("put again", () => transitions.put("default", [job], Date.now()));
    for (const event of ["ack", "release", "nack", "fail"] as const) {
      const lease =
        inTransaction("claim", () => transitions.claim("default", { leaseMs: LEASE_MS, budget: null, text: false })) ??
        parameters;
      inTransaction("extend", () => transitions.extend("default", lease, LEASE_MS));
      inTransaction("renew", () => transitions.renew("default", lease, LEASE_MS));
      inTransaction("markOverdue", () => transitions.markOverdue("default", lease));
      const said = { lastError: undefined, reason: "rejected", category: undefined } as const;
      const move = { event, delayMs: 0, exhaustedReason: "retries_exhausted", ...said } as const;
      inTransaction(event, () => transitions.settle("default", lease, move));
      inTransaction(`${event} again`, () => transitions.settle("default", lease, move));
    }
    inTransaction("claim with a budget", () =>
      transitions.claim("default", { leaseMs: LEASE_MS, budget: 1, text: false }),
    );
    other.exec("UPDATE messages SET lease_until = 1 WHERE status = 1; UPDATE messages SET available_at = 1");
    inTransaction("expire", () => transitions.expire("default", null));
    inTransaction("promote", () => transitions.promote("default"));
    const record = new CommitRecord(connection);
    inTransaction("recordEngine", () => record.look());
    inTransaction("recordLook", () => record.look());
    other.close();
    connection.close();
  });
});

/** A file that a Python client writes, too, so that its rows are counted. */
function prepare(): { directory: string; storage: Storage; database: Database } {
  const directory = tempDirectory();
  new Connection({ directory, driver: loadDriver() }).close();
  const database = openBare(directory);
  database.exec(PYTHON_INDEX);
  onTestFinished(() => database.close());
  return { directory, storage: open(directory), database };
}

function open(directory: string, queue = "default"): Storage {
  const storage = openStorage(directory, { queue, fsync: undefined });
  onTestFinished(() => storage.close());
  return storage;
}

function insert(database: Database, row: RowSql): number {
  const full = { ...USUAL, ...row };
  const sql = `INSERT INTO messages (${Object.keys(full).join(", ")}) VALUES (${Object.values(full).join(", ")})`;
  return database.prepare(sql).run().lastInsertRowid;
}

function exact(database: Database, id: number): Row | undefined {
  const columns = ["status", "attempts", "available_at", "lease_until", "receipt", "updated_at"];
  const exactly = columns.map((name) => `typeof(${name}) || ' ' || quote(${name}) AS ${name}`);
  return database.prepare(`SELECT ${exactly.join(", ")} FROM messages WHERE id = :id`).all({ id })[0];
}
