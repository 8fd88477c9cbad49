import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import type { Database, Row } from "../../../dist/storage/sqlite/driver.js";
import { openFile } from "../../support/database.ts";
import { TestClock } from "../../support/engine-harness.ts";
import { Random } from "../../support/random.mjs";
import { saltsOf, shapeOf } from "./log-file.ts";
import { memoryDirectory } from "./memory-directory.ts";
import { SimulatedProcess } from "./simulated-process.ts";
import { Story } from "./story.ts";

const STEPS = 36;
const QUEUES = ["a", "b"];

/** The files of a queue at a moment, and what it held after each commit in its log. */
export interface Recording {
  readonly database: Buffer;
  readonly log: Buffer;
  /** By the number of commits, from 0: what was there before all of them. */
  readonly states: readonly (string | undefined)[];
}

/** All that a queue's file holds, in a text that can be compared. */
export function stateOf(db: Database): string {
  const tables = [
    "SELECT *, hex(payload) AS payload FROM messages ORDER BY id",
    "SELECT * FROM event_bus_delivery_edges ORDER BY 1, 2",
    "SELECT queue, ready, processing, acked, failed FROM localqueue_counts WHERE queue <> '' ORDER BY queue",
  ];
  return tables.map((sql) => db.prepare(sql).all().map(lineOf).join("\n")).join("\n\n");
}

const lineOf = (row: Row): string => JSON.stringify(Object.values(row));

/**
 * Real traffic of two processes: the files after some of it, when nothing of the log was moved into the database yet,
 * and after more of it, when the log has begun anew.
 */
export function record(seed: number): readonly [Recording, Recording] {
  const recorder = new Recorder(seed);
  try {
    const first = recorder.work(STEPS);
    recorder.moveLog();
    // Less, so that what the log held before is still behind it.
    return [first, recorder.work(STEPS / 2)];
  } finally {
    recorder.close();
  }
}

class Recorder {
  readonly #random: Random;
  readonly #clock = new TestClock();
  readonly #directory = memoryDirectory();
  readonly #processes: readonly SimulatedProcess[];
  readonly #reader: Database;
  #states: (string | undefined)[] = [];
  /** Of a log that was moved into the database as a whole: until it begins anew, it says nothing. */
  #movedSalts: Buffer | undefined;
  #names = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
    const world = {
      directory: this.#directory,
      clock: this.#clock,
      random: this.#random,
      story: new Story(() => ({ mono: this.#clock.monotonic, wall: this.#clock.wall })),
      queues: QUEUES,
      newName: () => this.#newName(),
      knownIds: [],
    };
    this.#processes = ["p", "q"].map((name) => new SimulatedProcess(name, world));
    for (const process of this.#processes) {
      process.start();
      // Whatever was committed is in the file when the next transaction begins.
      process.plant({ at: "BEGIN IMMEDIATE", times: Number.POSITIVE_INFINITY, strikes: () => this.#look() });
    }
    this.#reader = openFile(this.#directory);
    // A file whose layout is not complete yet is an empty queue to whoever opens it.
    this.#states = new Array<string>(this.#commits() + 1).fill(stateOf(this.#reader));
  }

  /** Some payloads take pages of their own. */
  #newName(): string {
    const name = `job ${++this.#names}`;
    return this.#random.chance(0.2) ? name.padEnd(this.#random.between(4_000, 20_000), "·x") : name;
  }

  get #file(): string {
    return path.join(this.#directory, "localqueue.db");
  }

  #look(): void {
    this.#states[this.#commits()] ??= stateOf(this.#reader);
  }

  #commits(): number {
    const log = this.#readLog();
    if (this.#movedSalts?.equals(saltsOf(log))) return 0;
    return shapeOf(log).commitsWithin.at(-1) as number;
  }

  #readLog(): Buffer {
    return existsSync(`${this.#file}-wal`) ? readFileSync(`${this.#file}-wal`) : Buffer.alloc(0);
  }

  work(steps: number): Recording {
    for (let step = 0; step < steps; step++) this.#step(this.#random.pick(this.#processes));
    for (const process of this.#processes) for (let step = 0; step < 3; step++) process.step();
    this.#look();
    // SQLite's locks would be lost if this process closed the file.
    const database = execFileSync("cat", [this.#file], { maxBuffer: 64 * 1024 * 1024 });
    return { database, log: this.#readLog(), states: this.#states };
  }

  #step(process: SimulatedProcess): void {
    const action = this.#random.weighted({ put: 5, dispatch: 2, claim: 8, settle: 8, extend: 1, operate: 2, time: 3 });
    if (action === "time") this.#clock.advance(this.#random.pick([1, 100, 3_000]));
    else process[action]();
    process.step();
    process.hear();
  }

  /** Moves all of the log into the database: the next commit begins it anew. */
  moveLog(): void {
    const row = this.#reader.prepare("PRAGMA wal_checkpoint(PASSIVE)").get();
    if (row?.["busy"] !== 0 || row["log"] !== row["checkpointed"]) throw new Error("the log could not be moved");
    this.#movedSalts = Buffer.from(saltsOf(this.#readLog()));
    this.#states = [stateOf(this.#reader)];
  }

  close(): void {
    this.#reader.close();
    for (const process of this.#processes) process.kill();
    rmSync(this.#directory, { recursive: true });
  }
}
