import { describe, expect, onTestFinished, test } from "vitest";
import type { Database } from "../dist/storage/sqlite/driver.js";
import { event, expectConflict, takeOne } from "./contract/jobs.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { createPythonFile, openBare } from "./support/python-files.ts";
import { open } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";

// In such a file the event `a0c1` waits for a subscription and belongs to the execution e1, which goes on.

const EMAIL = "__bus__:app:email";
const AUDIT = "__bus__:app:audit";
const IDENTITY = { key: "event-identity:v1:00", fingerprint: "event-payload:v1:11" };

function pythonFile(): { directory: string; python: Database } {
  const directory = tempDirectory();
  createPythonFile(directory, "1.4.1");
  const python = openBare(directory);
  python.exec("PRAGMA foreign_keys = ON");
  onTestFinished(() => python.close());
  return { directory, python };
}

describe("in a file that Python's event bus writes, too", () => {
  test("an event that Python dispatched is known by its id and by its identity", async () => {
    const { directory } = pythonFile();
    const bus = open(directory, "bus");
    const known = [[{ id: 8, inserted: false }]];
    expect(await bus.dispatch([event([EMAIL], { jobId: "a0c1" })])).toEqual(known);
    expect(await bus.dispatch([event([EMAIL], { jobId: "a0c1", identity: IDENTITY })])).toEqual(known);
    expect(await bus.dispatch([event([EMAIL], { jobId: "another", identity: IDENTITY })])).toEqual(known);
    const changed = event([AUDIT, EMAIL], { identity: { ...IDENTITY, fingerprint: "event-payload:v1:22" } });
    await expectConflict(bus.dispatch([changed]), changed.jobId, EMAIL);
    expect(await bus.queues("__bus__:app:")).toEqual([{ queue: EMAIL, ready: 1, processing: 0, acked: 0, failed: 0 }]);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("what we dispatch is to Python as if it had done so itself", async () => {
    const { directory, python } = pythonFile();
    const identity = { key: "event-identity:v1:ff", fingerprint: "event-payload:v1:ff" };
    await open(directory).dispatch([event([EMAIL, AUDIT], { jobId: "b0c1", payload: "{}", identity })]);
    const rows =
      python.prepare(`SELECT queue, typeof(payload) AS type, status, attempts, max_attempts, job_id, dedup_key,
      dedup_fingerprint, available_at = created_at AND created_at = updated_at AS atOnce, lease_until, receipt, last_error,
      failure_reason, failure_category FROM messages WHERE id > 8 ORDER BY id`);
    const row = {
      type: "blob",
      status: 0,
      attempts: 0,
      max_attempts: 4,
      job_id: "b0c1",
      dedup_key: identity.key,
      dedup_fingerprint: identity.fingerprint,
      atOnce: 1,
      lease_until: null,
      receipt: null,
      last_error: null,
      failure_reason: null,
      failure_category: null,
    };
    expect(rows.all()).toEqual([EMAIL, AUDIT].map((queue) => ({ queue, ...row })));
    const again = python.prepare(`INSERT OR IGNORE INTO messages (queue, payload, status, max_attempts, available_at,
      job_id, dedup_key, dedup_fingerprint, created_at, updated_at)
      VALUES (:queue, x'7b7d', 0, 4, 0, :jobId, :key, :fingerprint, 0, 0)`);
    expect(again.run({ queue: EMAIL, jobId: "c0c1", ...identity }).changes).toBe(0);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("what we emit joins the execution of its cause, and its dead letters reopen it", async () => {
    const { directory, python } = pythonFile();
    const [email, audit] = [open(directory, EMAIL), open(directory, AUDIT)];
    const delivery = await takeOne(email);
    expect(await email.settle(delivery, { event: "ack", emit: [event([AUDIT])] })).toBe("acked");
    const [child] = select(directory, "SELECT id FROM messages WHERE id > 8");
    expect(select(directory, "SELECT * FROM event_bus_execution_deliveries ORDER BY message_id")).toEqual([
      { execution_id: "e1", message_id: 8 },
      { execution_id: "e1", message_id: child?.["id"] },
    ]);
    expect(select(directory, "SELECT * FROM event_bus_delivery_edges ORDER BY child_message_id")).toEqual([
      { parent_message_id: 6, child_message_id: 8 },
      { parent_message_id: 8, child_message_id: child?.["id"] },
    ]);

    const failure = { lastError: "", reason: "rejected", category: undefined } as const;
    await audit.settle(await takeOne(audit), { event: "fail", ...failure });
    python.exec("UPDATE event_bus_execution_runtime SET completed_at = 1");
    expect(await audit.purgeFailed({})).toBe(0);
    expect(await audit.retryFailed({ id: child?.["id"] as number })).toBe(1);
    expect(select(directory, "SELECT completed_at AS at FROM event_bus_execution_runtime")).toEqual([{ at: null }]);
    expect(select(directory, "PRAGMA foreign_key_check")).toEqual([]);
    expect(faultsOf(directory)).toEqual([]);
  });

  test("a job that joined an execution while its handler ran takes along what it emits, known or not", async () => {
    const { directory, python } = pythonFile();
    const audit = open(directory, AUDIT);
    await audit.dispatch([event([AUDIT])]);
    const delivery = await takeOne(audit);
    python.exec(`INSERT INTO event_bus_executions VALUES ('e2', 'app', 'people', NULL, 1, 0, 0);
      INSERT INTO event_bus_execution_deliveries VALUES ('e2', ${delivery.id})`);
    await audit.settle(delivery, { event: "ack", emit: [event([EMAIL], { identity: IDENTITY })] });
    const members = "SELECT message_id AS id FROM event_bus_execution_deliveries WHERE execution_id = 'e2' ORDER BY 1";
    expect(select(directory, members)).toEqual([{ id: 8 }, { id: delivery.id }]);
  });

  test("an emission that closes a circle of causes ends all the same", async () => {
    const { directory, python } = pythonFile();
    const email = open(directory, EMAIL);
    const delivery = await takeOne(email);
    // Python has seen the job 6 come of it, of which it came.
    python.exec("INSERT INTO event_bus_delivery_edges VALUES (8, 6)");
    await email.settle(delivery, { event: "ack", emit: [event([EMAIL], { jobId: "a0c1" })] });
    expect(select(directory, "SELECT message_id AS id FROM event_bus_execution_deliveries")).toEqual([
      { id: 6 },
      { id: 8 },
    ]);
  });
});
