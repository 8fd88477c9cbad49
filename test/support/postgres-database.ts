import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import type { Row } from "../../dist/storage/sqlite/driver.js";
import type { TestDatabase } from "./test-database.ts";

const LONGEST_MS = 30_000;

interface Answer {
  readonly result?: unknown;
  readonly error?: { readonly message: string; readonly code?: string };
}

/** What all connections of this thread go through: a thread that runs a statement while this one waits. */
class Runner {
  readonly #cell = new Int32Array(new SharedArrayBuffer(4));
  readonly #port: MessagePort;
  readonly #worker: Worker;

  constructor() {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#worker = new Worker(new URL("./postgres-thread.mjs", import.meta.url), {
      workerData: { port: port2, cell: this.#cell },
      transferList: [port2],
      execArgv: [],
    });
    this.#worker.unref();
  }

  run(request: object): unknown {
    const before = Atomics.load(this.#cell, 0);
    this.#worker.postMessage(request);
    if (Atomics.wait(this.#cell, 0, before, LONGEST_MS) === "timed-out") throw new Error("PostgreSQL does not answer");
    const { result, error }: Answer = receiveMessageOnPort(this.#port)?.message ?? {};
    if (error !== undefined) throw Object.assign(new Error(error.message), error);
    return result;
  }
}

let runner: Runner | undefined;
let connections = 0;

/** A connection to a schema; its statements are as SQLite knows them, as far as the tests need that. */
export class PostgresDatabase implements TestDatabase {
  readonly #connection = ++connections;
  readonly #runner: Runner;

  constructor(location: string) {
    runner ??= new Runner();
    this.#runner = runner;
    const url = new URL(location);
    const schema = url.searchParams.get("schema") ?? "localqueue";
    url.searchParams.delete("schema");
    const setUp = `SET search_path TO ${schema}; SET lock_timeout = '20s'`;
    this.#runner.run({ verb: "open", connection: this.#connection, url: url.href, setUp });
  }

  exec(sql: string): void {
    this.#runner.run({ verb: "query", connection: this.#connection, sql: translate(sql) });
  }

  prepare(sql: string): ReturnType<TestDatabase["prepare"]> {
    const query = (parameters: { readonly [name: string]: unknown } = {}): { rows: Row[]; changes: number } => {
      const names: string[] = [];
      const text = translate(sql).replaceAll(/(?<!:):([a-z]\w*)/gi, (_, name: string) => {
        if (!names.includes(name)) names.push(name);
        return `$${names.indexOf(name) + 1}`;
      });
      const values = names.map((name) => parameters[name]);
      return this.#runner.run({ verb: "query", connection: this.#connection, sql: text, values }) as ReturnType<
        typeof query
      >;
    };
    return { all: (parameters) => query(parameters).rows, get: (parameters) => query(parameters).rows[0], run: query };
  }

  close(): void {
    this.#runner.run({ verb: "close", connection: this.#connection });
  }
}

/** What the tests write in the words of SQLite. */
function translate(sql: string): string {
  return sql
    .replaceAll("CAST(payload AS TEXT)", "convert_from(payload, 'UTF8')")
    .replaceAll(/CAST\((\w)\.payload AS TEXT\)/g, "convert_from($1.payload, 'UTF8')")
    .replaceAll("length(payload)", "octet_length(payload)")
    .replaceAll("CAST(:payload AS BLOB)", ":payload::bytea");
}
