import fs from "node:fs";
import { describe, expect, test } from "vitest";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { DIAGNOSIS_SQL } from "../dist/storage/sqlite/diagnosis.js";
import { type Database, loadDriver } from "../dist/storage/sqlite/driver.js";
import { LOOK_SQL, type LookName } from "../dist/storage/sqlite/look.js";
import { SQL, type StatementName } from "../dist/storage/sqlite/statements.js";
import { Transitions } from "../dist/storage/sqlite/transitions.js";
import { explain } from "./support/plans.ts";
import { tempDirectory } from "./support/temp.ts";

const PRIMARY_KEY = "INTEGER PRIMARY KEY";

/** How each statement finds its rows in `messages`. */
const ACCESS: Readonly<Record<StatementName, readonly string[]>> = {
  put: [],
  putRows: [],
  findByJobId: ["idx_messages_job_id"],
  putEvent: [],
  knownById: ["idx_messages_job_id"],
  knownByKey: ["idx_messages_dedup_key"],
  addEdges: [],
  isTracked: [],
  trackAll: [],
  look: ["localqueue_ready", "localqueue_delayed", "localqueue_leased"],
  promote: [PRIMARY_KEY, "localqueue_delayed"],
  expire: [PRIMARY_KEY, "localqueue_leased"],
  exhaust: [PRIMARY_KEY, "localqueue_ready"],
  claim: [PRIMARY_KEY, "localqueue_ready"],
  claimable: ["localqueue_ready"],
  claimRange: ["localqueue_ready"],
  payload: [PRIMARY_KEY],
  ack: [PRIMARY_KEY],
  ackRows: [PRIMARY_KEY],
  nack: [PRIMARY_KEY],
  fail: [PRIMARY_KEY],
  release: [PRIMARY_KEY],
  extend: [PRIMARY_KEY],
  renew: [PRIMARY_KEY],
  markOverdue: [PRIMARY_KEY],
  remove: [PRIMARY_KEY],
  discard: [PRIMARY_KEY],
  isFailed: [PRIMARY_KEY],
  replay: [PRIMARY_KEY],
  reopenExecutions: [],
  lastOfAll: [PRIMARY_KEY],
  lastFailed: ["localqueue_failed"],
  stretchOfAll: [PRIMARY_KEY],
  stretchOfFailed: ["localqueue_failed"],
  purgeAcked: [PRIMARY_KEY],
  purgeFailed: ["localqueue_failed"],
  failedIn: ["localqueue_failed"],
  createdAt: [PRIMARY_KEY],
  stats: [],
  count: [],
  recordCommit: [],
  recordEngine: [],
  forgetEngines: [],
  recordedCommit: [],
  recordLook: [],
  totalChanges: [],
  latestLeased: ["localqueue_leased"],
  aheadLeased: ["localqueue_leased"],
  aheadDelayed: ["localqueue_delayed"],
  pullBackLease: [PRIMARY_KEY],
  pullBackDelay: [PRIMARY_KEY],
  resetClock: [],
  clock: [],
  queues: [],
  pageCount: [],
  freePages: [],
  dataVersion: [],
  schemaVersion: [],
  autoVacuum: [],
};

/** The same for what looks at jobs, beside the engine. */
const LOOK_ACCESS: Readonly<Record<LookName | "diagnosis", readonly string[]>> = {
  findById: [PRIMARY_KEY],
  findByJobId: ["idx_messages_job_id"],
  listReady: [PRIMARY_KEY, "localqueue_ready", "localqueue_delayed"],
  listProcessing: [PRIMARY_KEY, "localqueue_leased"],
  listAcked: [PRIMARY_KEY],
  listFailed: ["localqueue_failed"],
  deadLetters: ["localqueue_failed"],
  queues: [],
  diagnosis: [
    "localqueue_ready",
    "localqueue_delayed",
    "localqueue_delayed",
    "localqueue_leased",
    "localqueue_leased",
    "localqueue_leased",
  ],
};

/** Ids in an index of another order, of which there are few, are sorted. */
const MAY_SORT: ReadonlySet<string> = new Set(["listReady", "listProcessing"]);

/** Repairs after the clock was set back: they may walk all that is leased. */
const MAY_SCAN: ReadonlySet<string> = new Set(["latestLeased", "aheadLeased"]);

const PYTHON_INDEX = "CREATE INDEX idx_messages_queue_status ON messages(queue, status, available_at, lease_until)";

/** Rows of all kinds in one go: queue, status, delay and lease depend on the row's number. */
const MIXED_ROWS = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
  INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, lease_until, receipt, job_id,
      created_at, updated_at)
    SELECT 'queue ' || (i % 3), x'7b7d', i / 7 % 4, i % 5, 4, 1800000000000 + iif(i % 2, 0, i), iif(i / 7 % 4 = 1, 1800000000000 + i, NULL),
      iif(i / 7 % 4 = 1, 'receipt ' || i, NULL), iif(i % 11, NULL, 'job ' || i), 1800000000000, 1800000000000 FROM n`;

describe.each([
  { python: false, analyzed: false },
  { python: false, analyzed: true },
  { python: true, analyzed: false },
  { python: true, analyzed: true },
])("with Python's index: $python, after ANALYZE: $analyzed", ({ python, analyzed }) => {
  test("every statement finds its rows through the index that was made for it, and sorts nothing", () => {
    const database = newDatabase();
    database.exec(MIXED_ROWS);
    if (python) database.exec(PYTHON_INDEX);
    if (analyzed) database.exec("ANALYZE");
    const access: { readonly [name: string]: readonly string[] } = { ...ACCESS, ...LOOK_ACCESS };
    for (const [name, sql] of Object.entries({ ...SQL, ...LOOK_SQL, diagnosis: DIAGNOSIS_SQL })) {
      if (sql.startsWith("PRAGMA")) continue;
      const plan = explain(database, sql);
      const steps = plan.filter((step) => /\bmessages\b/.test(step));
      const used = steps.map((step) => /USING (?:COVERING )?(?:INDEX (\w+)|(INTEGER PRIMARY KEY))/.exec(step));
      expect({ name, used: used.map((match) => match?.[1] ?? match?.[2]) }).toEqual({
        name,
        used: access[name],
      });
      // Not left to the planner: other data may lead it elsewhere.
      const named = [...sql.matchAll(/INDEXED BY (\w+)/g)].map(([, index]) => index);
      expect({ name, named }).toEqual({
        name,
        named: access[name]?.filter((index) => index !== PRIMARY_KEY),
      });
      if (!MAY_SORT.has(name))
        expect({ name, sorts: plan.filter((step) => step.includes("TEMP B-TREE")) }).toEqual({ name, sorts: [] });
      const ofPython = plan.filter((step) => /\bevent_bus_\w+/.test(step));
      const scans = MAY_SCAN.has(name) ? [] : [...steps, ...ofPython].filter((step) => step.startsWith("SCAN"));
      expect({ name, scans }).toEqual({ name, scans: [] });
    }
    database.close();
  });
});

/** What Linux says this thread has read from files. */
const IO = "/proc/thread-self/io";

describe.runIf(fs.existsSync(IO))("the pages that are read", () => {
  const BACKLOGS: { readonly [what: string]: string } = {
    ready: backlog("0", "1800000000000", "NULL"),
    delayed: backlog("0", "1800000000001 + i", "NULL"),
    leased: backlog("1", "1800000000000", "1800000000001 + i"),
    acked: backlog("2", "1800000000000", "NULL"),
    failed: backlog("3", "1800000000000", "NULL"),
  };

  test("stay as few with 200,000 jobs of all kinds in the queue as with none", () => {
    const empty = pagesRead([]);
    const full = pagesRead(Object.values(BACKLOGS));
    // A tree of that size is a level or two deeper, here and there; a sort or a scan would read a thousand pages.
    for (const [verb, pages] of Object.entries(full)) {
      expect({ verb, more: Math.max(0, pages - (empty[verb] ?? 0) - 30) }).toEqual({ verb, more: 0 });
    }
  });

  function backlog(status: string, availableAt: string, leaseUntil: string): string {
    return `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
      INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, lease_until, created_at, updated_at)
      SELECT 'q', zeroblob(100), ${status}, 1, 4, ${availableAt}, ${leaseUntil}, 1800000000000, 1800000000000 FROM n`;
  }

  /** The pages that each verb reads, with so little cache that it has to read what it looks at. */
  function pagesRead(rows: readonly string[]): { [verb: string]: number } {
    let database: Database | undefined;
    const driver = loadDriver();
    const open = (path: string): Database => {
      database = driver.open(path);
      return database;
    };
    const connection = new Connection({ directory: tempDirectory(), driver: { ...driver, open } });
    database?.exec(PYTHON_INDEX);
    for (const sql of rows) database?.exec(sql);
    database?.exec("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA cache_size = 10");
    let now = 1_800_000_000_000;
    const transitions = new Transitions(connection, () => now);
    const job = { payload: new Uint8Array(100), jobId: "job", delayMs: 0, maxAttempts: 4 };
    const delayed = { ...job, jobId: null, delayMs: 1 };
    const read: { [verb: string]: number } = {};
    const transaction = <T>(verb: string, work: () => T): T => {
      const before = bytesRead();
      connection.begin(false, 50);
      const result = work();
      transitions.writeCounts();
      connection.commit();
      read[verb] = (bytesRead() - before) / 4096;
      return result;
    };
    // The first transaction sees that Python's index appeared, and counts all rows.
    transaction("recount", () => transitions.stats("q"));
    delete read["recount"];
    transaction("put", () => transitions.put("q", [job], now));
    const event = { ...job, jobId: "event", queues: ["q", "r"], identity: { key: "k", fingerprint: "f" } };
    transaction("dispatch", () => transitions.dispatch([event], now));
    transaction("dispatch what is there", () => transitions.dispatch([{ ...event, jobId: "other" }], now));
    transaction("put delayed", () => transitions.put("q", [delayed], now));
    transaction("look", () => transitions.look("q"));
    const claimed = transaction("claim", () => transitions.claim("q", { leaseMs: 50, budget: null, text: false }));
    transaction("claim several", () => transitions.claimSeveral("q", { leaseMs: 50, budget: null, text: false }, 2));
    transaction("renew", () => transitions.renew("q", claimed ?? { id: 0, receipt: "" }, 50));
    transaction("ack", () => transitions.settle("q", claimed ?? { id: 0, receipt: "" }, { event: "ack" }));
    transaction("emit", () => transitions.emit(claimed?.id ?? 0, [{ ...event, jobId: "child" }], now));
    transaction("stats", () => transitions.stats("q"));
    now++;
    transaction("promote", () => transitions.promote("q"));
    const other = transaction("claim with a budget", () =>
      transitions.claim("q", { leaseMs: 50, budget: 100, text: false }),
    );
    transaction("release", () => transitions.settle("q", other ?? { id: 0, receipt: "" }, { event: "release" }));
    transaction("expire", () => transitions.expire("q", null));
    connection.close();
    return read;
  }
});

function bytesRead(): number {
  return Number(/^rchar: (\d+)$/m.exec(fs.readFileSync(IO, "utf8"))?.[1]);
}

/** A database as we make it, through a connection for anything. */
function newDatabase(): Database {
  const connection = new Connection({ directory: tempDirectory(), driver: loadDriver() });
  const database = loadDriver().open(connection.file);
  connection.close();
  return database;
}

/** The steps by which SQLite would perform a statement. */
