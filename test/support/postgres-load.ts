import { mkdirSync } from "node:fs";
import path from "node:path";
import { assertValid, historyOf, workOffAndCheck } from "../reliability/support/work-off.ts";
import { Program, type ProgramOptions } from "./program.ts";
import { tempDirectory } from "./temp.ts";
import { until } from "./until.ts";

const QUEUES = ["orders", "mails", "bin", "few"];
/** What operations reject with when a fault lasts longer than they wait. */
const TOLERATED = ["CONNECTION", "BUSY", "READ_ONLY", "IO"];
const RESUME_MS = 30_000;

/** Processes that do everything with queues on PostgreSQL at random, and record what came of it. */
export class PostgresLoad {
  readonly #programs: Program[] = [];
  readonly #histories: string;
  readonly #seed: number;

  constructor(seed: number) {
    this.#seed = seed;
    this.#histories = path.join(tempDirectory(), "histories");
    mkdirSync(this.#histories);
  }

  /** Another process; resolves when it is at work. */
  async add(location: string, options: ProgramOptions = {}): Promise<void> {
    const input = { location, histories: this.#histories, seed: this.#seed, number: this.#programs.length };
    const settings = { deletes: true, limit: 40, tolerated: TOLERATED };
    const program = new Program("../reliability/programs/load.mjs", { ...input, ...settings }, options);
    this.#programs.push(program);
    await program.hears("running");
  }

  /** Resolves when all the processes have done something since it was called. */
  async resumes(): Promise<void> {
    const since = performance.timeOrigin + performance.now();
    const ended = Promise.race(this.#programs.map((program) => program.exited));
    const resumed = until(() => {
      const done = historyOf({ histories: this.#histories }).filter(({ type, wall }) => type === "ok" && wall > since);
      return new Set(done.map(({ process }) => process)).size === this.#programs.length;
    }, RESUME_MS);
    const early = await Promise.race([resumed, ended]);
    if (typeof early === "object") throw new Error(`A process ended by itself: ${early.stderr}`);
  }

  /** Ends the processes, works off what is left, and holds what happened against the guarantees. */
  async check(location: string): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.end(60_000)));
    const findings = await workOffAndCheck({ location, histories: this.#histories, queues: QUEUES });
    assertValid(findings);
  }
}
