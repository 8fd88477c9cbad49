// The same for PostgreSQL: see faults.mjs. Those that are to notice them run on PostgreSQL.

const SQL = "src/storage/postgres/statements.ts";
const HELD = `m.id = given.id AND m.queue = given.queue AND m.status = 1 AND m.receipt = given.receipt
  AND m.lease_until > \${NOW}\``;

const FAULTS = [
  {
    name: "P1 an ack without a receipt",
    file: SQL,
    find: HELD,
    replace: `m.id = given.id AND m.queue = given.queue AND m.status = 1
  AND m.lease_until > \${NOW}\``,
    by: ["storage.model.test.ts", "postgres.contract.test.ts"],
  },
  {
    name: "P2 an ack after the lease",
    file: SQL,
    find: HELD,
    replace: "m.id = given.id AND m.queue = given.queue AND m.status = 1 AND m.receipt = given.receipt`",
    by: ["storage.model.test.ts"],
  },
  {
    name: "P3 a claim that waits for what others are just taking",
    file: SQL,
    find: "ORDER BY id LIMIT $2::bigint FOR NO KEY UPDATE SKIP LOCKED",
    replace: "ORDER BY id LIMIT $2::bigint FOR NO KEY UPDATE",
    by: ["postgres.concurrency.test.ts"],
  },
  {
    name: "P4 a clock that is read when the transaction begins",
    file: SQL,
    find: "floor(extract(epoch FROM clock_timestamp()) * 1000)",
    replace: "floor(extract(epoch FROM now()) * 1000)",
    by: ["postgres.concurrency.test.ts"],
  },
  {
    name: "P5 a COMMIT whose answer is lost, and is taken for undone",
    file: "src/storage/postgres/runner.ts",
    find: "    if (!marked) throw new Undone();\n",
    replace: "    if (marked !== undefined) throw new Undone();\n",
    by: ["postgres.cuts.test.ts"],
  },
  {
    name: "P6 a COMMIT whose answer is lost, and is taken for done",
    file: "src/storage/postgres/runner.ts",
    find: "if (await this.#use((session) => wasCommitted(session, { mark, sql: this.#sql }))) return;",
    replace:
      "if (await this.#use((session) => wasCommitted(session, { mark, sql: this.#sql })).then(() => true)) return;",
    by: ["postgres.cuts.test.ts"],
  },
  {
    name: "P7 a renewal without a receipt",
    file: SQL,
    find: "m.status = 1 AND m.receipt = given.receipt),\n      free",
    replace: "m.status = 1),\n      free",
    also: {
      file: SQL,
      find: "m.status = 1\n          AND m.receipt = given.receipt\n        RETURNING given.n",
      replace: "m.status = 1\n        RETURNING given.n",
    },
    by: ["worker.leases.test.ts"],
  },
  {
    name: "P8 a limit that several may pass at once",
    file: SQL,
    find: `SELECT pg_advisory_xact_lock(hashtextextended('localqueue limit of \${schema}.' || $1::text, 0))`,
    replace: "SELECT $1::text",
    by: ["queue.capacity.test.ts"],
  },
  {
    name: "P9 a schema that several make at once",
    file: "src/storage/postgres/schema.ts",
    find: "SELECT pg_advisory_xact_lock(hashtextextended('localqueue migration of ' || $1, 0))",
    replace: "SELECT $1::text",
    by: ["queue.capacity.test.ts", "processes.test.ts"],
  },
  {
    name: "P10 leases that end and are not counted",
    file: SQL,
    find: `\${counting("moved", "processing")}
      SELECT (SELECT count(*) FROM moved) AS expired`,
    replace: "counted AS (SELECT 1)\n      SELECT (SELECT count(*) FROM moved) AS expired",
    by: ["storage.model.test.ts"],
  },
  {
    name: "P11 a claim that takes the last ones first",
    file: SQL,
    find: "ORDER BY id LIMIT $2::bigint",
    replace: "ORDER BY id DESC LIMIT $2::bigint",
    by: ["storage.model.test.ts"],
  },
  {
    name: "P12 jobs of which other processes are not told",
    file: "src/storage/postgres/client.ts",
    find: "    this.#notices.announce(queues);\n",
    replace: "",
    by: ["postgres.concurrency.test.ts"],
  },
  {
    name: "P13 a server that only reads, and is not waited for",
    file: "src/storage/postgres/runner.ts",
    find: 'state === "25006" || ',
    replace: "",
    by: ["postgres.restarts.test.ts"],
  },
  {
    name: "P14 jobs with names that are added in the order of each client",
    file: SQL,
    find: "FROM given ORDER BY queue, job_id, n",
    replace: "FROM given ORDER BY n",
    by: ["postgres.concurrency.test.ts"],
  },
  {
    name: "P15 a large payload that has no longer than a small one",
    file: "src/storage/postgres/transaction.ts",
    find: "    this.#hungMs += uploadMs(values);\n",
    replace: "",
    by: ["postgres.cuts.test.ts"],
  },
  {
    name: "P16 a mark that is used again while its last transaction may go on",
    file: "src/storage/postgres/runner.ts",
    find: 'if (troubleOf(error) !== "gone") this.#marks.push(mark);',
    replace: "this.#marks.push(mark);",
    by: ["postgres.cuts.test.ts"],
  },
  {
    name: "P17 claims though no lease can be renewed",
    file: "src/storage/postgres/keeper.ts",
    find: "    this.#become(failure);\n",
    replace: "    this.#become(true);\n",
    by: ["postgres.leases.test.ts"],
  },
  {
    name: "P18 a locked row that keeps the others waiting",
    file: "src/storage/postgres/lane.ts",
    find: "if (meetsLocks && ++locked > WHOLE_TRIES) {",
    replace: "if (meetsLocks && ++locked > WHOLE_TRIES && wanted.length > 1) {",
    by: ["postgres.concurrency.test.ts"],
  },
];

export const POSTGRES_FAULTS = FAULTS.map((fault) => ({ ...fault, on: "postgres" }));
