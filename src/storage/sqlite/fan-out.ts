import type { Enqueued, Identity } from "../storage.ts";
import type { Connection } from "./connection.ts";
import type { Row } from "./driver.ts";
import type { NewEvent } from "./protocol.ts";

/** An event of this identity is there already, with another payload: what was begun is to be undone. */
export class Conflict extends Error {
  readonly jobId: string;
  readonly queue: string;

  constructor(jobId: string, queue: string) {
    super("an event with the same identity and another payload is there already");
    this.jobId = jobId;
    this.queue = queue;
  }
}

/** Adds an event to its queues; the outcomes are in their order. `added` is told where. Throws a `Conflict`. */
export function fanOut(
  sql: Connection["statements"],
  event: NewEvent,
  now: number,
  added: (queue: string) => void,
): Enqueued[] {
  const { queues, payload, jobId, maxAttempts, context = null, identity } = event;
  const { key = null, fingerprint = null } = identity ?? {};
  return queues.map((queue) => {
    const row = { queue, payload, jobId, maxAttempts, context, key, fingerprint, now };
    const { changes, lastInsertRowid } = sql.putEvent.run(row);
    if (changes === 0) return { id: known(sql, queue, jobId, identity), inserted: false };
    added(queue);
    return { id: lastInsertRowid, inserted: true };
  });
}

/** The job that is there instead of an event, which then is the same event. */
function known(sql: Connection["statements"], queue: string, jobId: string, identity: Identity | undefined): number {
  const byId = sql.knownById.get({ queue, jobId });
  const byKey = identity && sql.knownByKey.get({ queue, key: identity.key });
  const differ = byId !== undefined && byKey !== undefined && byId["id"] !== byKey["id"];
  if (differ || !matches(byId, identity) || !matches(byKey, identity)) throw new Conflict(jobId, queue);
  return (byId ?? byKey)?.["id"] as number;
}

function matches(row: Row | undefined, identity: Identity | undefined): boolean {
  if (row === undefined || identity === undefined) return true;
  return row["dedup_key"] === identity.key && row["dedup_fingerprint"] === identity.fingerprint;
}

/** Links what an event's handler emitted, new or not, to its job, and to the executions that this belongs to. */
export function link(sql: Connection["statements"], parent: number, emitted: readonly Enqueued[][]): void {
  const children = JSON.stringify(emitted.flatMap((outcomes) => outcomes.map(({ id }) => id)));
  sql.addEdges.run({ parent, children });
  if (sql.isTracked.get({ id: parent }) !== undefined) sql.trackAll.run({ parent, children });
}
