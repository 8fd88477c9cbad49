import { STATES } from "../../state.ts";
import { countsOf, failedOf, jobOf } from "../job-rows.ts";
import type {
  FailedRecord,
  FailedRequest,
  JobKey,
  JobRecord,
  ListRequest,
  QueueCounts,
  QueueStats,
} from "../storage.ts";
import type { Client } from "./client.ts";
import type { Row } from "./rows.ts";
import { REASON } from "./statements.ts";

/** So many rows of counts are worth being drawn together. */
const MANY_COUNTS = 200;

const JOB = "id, status, attempts, available_at, lease_until, created_at, updated_at, job_id, last_error";

/** Looks at jobs without claiming them. */
export class Looking {
  readonly #client: Client;
  readonly #messages: string;

  constructor(client: Client, schema: string) {
    this.#client = client;
    this.#messages = `"${schema}".messages`;
  }

  async stats(queue: string): Promise<QueueStats> {
    const [row] = await this.#client.read(this.#client.sql.stats, [queue]);
    if ((row?.["parts"] as number) > MANY_COUNTS) this.#client.chores.drawTogether(queue);
    return countsOf(row as Row);
  }

  async queues(prefix: string): Promise<QueueCounts[]> {
    const rows = await this.#client.read(this.#client.sql.queues, [prefix]);
    // The database compares texts by their bytes, which is another order.
    return rows
      .map((row) => ({ queue: row["queue"] as string, ...countsOf(row) }))
      .sort((a, b) => (a.queue < b.queue ? -1 : 1));
  }

  async find(queue: string, by: JobKey): Promise<JobRecord | undefined> {
    const [which, value] = "id" in by ? ["id = $2::bigint", by.id] : ["job_id = $2::text", by.jobId];
    const [row] = await this.#client.read(`SELECT ${JOB} FROM ${this.#messages} WHERE queue = $1 AND ${which}`, [
      queue,
      value,
    ]);
    return row && jobOf(row);
  }

  async list(queue: string, { state, limit, afterId = 0 }: ListRequest): Promise<JobRecord[]> {
    const rows = await this.#client.read(
      `SELECT ${JOB} FROM ${this.#messages} WHERE queue = $1 AND status = ${STATES.indexOf(state)} AND id > $2
        ORDER BY id LIMIT $3`,
      [queue, afterId, limit],
    );
    return rows.map(jobOf);
  }

  async listFailed(queue: string, which: FailedRequest): Promise<FailedRecord[]> {
    const { limit, offset = 0, afterId = 0, reason = null, category = null } = which;
    const rows = await this.#client.read(
      `SELECT ${JOB}, ${REASON} AS reason, failure_category AS category, encode(payload, 'hex') AS payload
        FROM ${this.#messages} WHERE queue = $1 AND status = 3 AND id > $2
          AND ($3::text IS NULL OR ${REASON} = $3) AND ($4::text IS NULL OR failure_category = $4)
        ORDER BY id LIMIT $5 OFFSET $6`,
      [queue, afterId, reason, category, limit, offset],
    );
    return rows.map((row) => failedOf(row, new Uint8Array(Buffer.from(row["payload"] as string, "hex"))));
  }
}
