// A process of the previous version, as far as the file sees it: its layout, its statements, word for word.
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { input, say, told } from "./lines.mjs";

const SQL = {
  put: `INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, job_id, created_at, updated_at)
    VALUES (:queue, CAST(:payload AS BLOB), 0, 0, :maxAttempts, :now + :delayMs, :jobId, :now, :now) ON CONFLICT DO NOTHING`,
  claim: `UPDATE messages SET status = 1, attempts = attempts + 1, max_attempts = coalesce(:budget, max_attempts),
      receipt = :receipt, lease_until = :now + :leaseMs, updated_at = :now
    WHERE status = 0 AND id = (
      SELECT id FROM messages INDEXED BY localqueue_ready
      WHERE queue = :queue AND status = 0 AND available_at <= updated_at ORDER BY id LIMIT 1)
    RETURNING id, CAST(payload AS BLOB) AS payload, max(min(attempts, 9007199254740991), -9007199254740991) AS attempts,
      job_id, max(min(created_at, 9007199254740991), -9007199254740991) AS created_at`,
  ack: `UPDATE messages SET status = 2, receipt = NULL, lease_until = NULL, updated_at = :now
    WHERE id = :id AND queue = :queue AND status = 1 AND receipt = :receipt AND lease_until > :now`,
  nack: `UPDATE messages SET
      status = CASE WHEN attempts < max_attempts THEN 0 ELSE 3 END,
      available_at = CASE WHEN attempts < max_attempts THEN :now + :delayMs ELSE :now END,
      failure_reason = CASE WHEN attempts < max_attempts THEN NULL ELSE :reason END,
      failure_category = NULL, last_error = :lastError, receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now
    WHERE id = :id AND queue = :queue AND status = 1 AND receipt = :receipt AND lease_until > :now RETURNING status`,
  count: `INSERT INTO localqueue_counts (queue, ready, processing, acked, failed, clock)
    VALUES (:queue, :ready, :processing, :acked, :failed, :now)
    ON CONFLICT (queue) DO UPDATE SET ready = ready + excluded.ready, processing = processing + excluded.processing,
      acked = acked + excluded.acked, failed = failed + excluded.failed, clock = excluded.clock`,
};

const { directory, queue = "default" } = input;
mkdirSync(directory, { recursive: true });
const db = loadDriver().open(path.join(directory, "localqueue.db"));
db.exec(
  "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON",
);
inTransaction(() => {
  if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'messages'").get() !== undefined) return;
  db.exec(readFileSync(new URL("previous-layout.sql", import.meta.url), "utf8"));
});
// Prepared once, as an engine does: a migration by somebody else comes while they are in use.
const sql = Object.fromEntries(Object.entries(SQL).map(([name, text]) => [name, db.prepare(text)]));

function inTransaction(work) {
  db.exec("BEGIN IMMEDIATE");
  const result = work();
  db.exec("COMMIT");
  return result;
}

function moved(counts) {
  sql.count.run({ queue, ready: 0, processing: 0, acked: 0, failed: 0, now: Date.now(), ...counts });
}

const verbs = {
  put: (payload) =>
    inTransaction(() => {
      const job = { queue, payload: JSON.stringify(payload), maxAttempts: 4, delayMs: 0, jobId: null, now: Date.now() };
      moved({ ready: 1 });
      return sql.put.run(job).lastInsertRowid;
    }),
  claim: () =>
    inTransaction(() => {
      const receipt = randomUUID();
      const [row] = sql.claim.all({ queue, leaseMs: 60_000, budget: null, now: Date.now(), receipt });
      if (row === undefined) return null;
      moved({ ready: -1, processing: 1 });
      return { id: row.id, receipt, attempt: row.attempts, data: JSON.parse(Buffer.from(row.payload).toString()) };
    }),
  ack: ({ id, receipt }) =>
    inTransaction(() => {
      const { changes } = sql.ack.run({ id, queue, receipt, now: Date.now() });
      if (changes === 1) moved({ processing: -1, acked: 1 });
      return changes;
    }),
  nack: ({ id, receipt }) =>
    inTransaction(() => {
      const held = { id, queue, receipt, now: Date.now() };
      const rows = sql.nack.all({ ...held, delayMs: 0, lastError: null, reason: "retries_exhausted" });
      if (rows.length === 1) moved({ processing: -1, ready: 1 });
      return rows.length;
    }),
};

let stopped = false;

/** Puts and works, as fast as it can, until it is told to stop. */
async function bustle(name) {
  const put = [];
  const done = [];
  say("bustling");
  for (let n = 0; !stopped; n++) {
    put.push(`${name} ${n}`);
    verbs.put(put.at(-1));
    const job = verbs.claim();
    if (job !== null && verbs.ack(job) === 1) done.push(job.data);
    await sleep(0);
  }
  say("stopped", { put, done });
}

say("open");
for await (const { verb, args = [] } of told()) {
  if (verb === "bustle") void bustle(...args);
  else if (verb === "stop") stopped = true;
  else say(verb, { result: verbs[verb](...args) });
}
db.close();
