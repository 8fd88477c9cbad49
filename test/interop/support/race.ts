import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { Program } from "../../support/program.ts";
import type { Random } from "../../support/random.mjs";
import { tempDirectory } from "../../support/temp.ts";
import { until } from "../../support/until.ts";
import { type FinalRow, type ProcessHistory, readHistory } from "./history.ts";
import { CURRENT, interpreterOf } from "./python.ts";

/** Six times as many are 20,004. */
export const JOBS_EACH = 3_334;

interface RaceJob {
  readonly jobId: string;
  readonly does: FinalRow["does"];
}

/** The jobs of a producer, in the batches in which it puts them. */
export function batchesOf(producer: string): RaceJob[][] {
  const batches: RaceJob[][] = [];
  for (let n = 0; n < JOBS_EACH; ) {
    const size = Math.min(batches.length % 6 === 5 ? 5 : 1, JOBS_EACH - n);
    batches.push(Array.from({ length: size }, (_, i) => ({ jobId: `${producer}/${n + i}`, does: doesOf(n + i) })));
    n += size;
  }
  return batches;
}

/** Some are given back, once or always, or fail; most are done. */
function doesOf(n: number): RaceJob["does"] {
  if (n % 100 === 7) return "fail";
  if (n % 200 === 13) return "nack";
  return n % 50 === 3 ? "nack once" : "ack";
}

interface RoleOptions {
  readonly name: string;
  readonly language: ProcessHistory["language"];
  /** How many jobs it holds at a time. */
  readonly slots: number;
  /** Where the histories of its processes are written. */
  readonly histories: string;
  /** Starts a process that writes its history to that file, and goes on where the last one stopped. */
  readonly start: (history: string, batchesPut: number) => Program;
}

/** One of the twelve: a process, and after each kill another one in its place. */
class Role {
  readonly name: string;
  readonly slots: number;
  readonly dead: Program[] = [];
  program: Program;
  readonly #options: RoleOptions;
  #batchesPut = 0;

  constructor(options: RoleOptions) {
    this.name = options.name;
    this.slots = options.slots;
    this.#options = options;
    this.program = this.#next();
  }

  /** How many batches its processes know to be in the file. */
  get batchesPut(): number {
    return this.#batchesPut + this.program.said("put").length;
  }

  async kill(): Promise<void> {
    const { program } = this;
    await program.kill();
    const { code, signal, stderr } = await program.exited;
    expect({ name: this.name, code, signal, stderr }).toMatchObject({ signal: "SIGKILL", stderr: "" });
    this.dead.push(program);
    this.#batchesPut += program.said("put").length;
    this.program = this.#next();
  }

  histories(): ProcessHistory[] {
    return [...this.dead, this.program].map((program, n) => ({
      name: `${this.name}.${n}`,
      language: this.#options.language,
      killed: program !== this.program,
      records: readHistory(this.#file(n)),
    }));
  }

  #next(): Program {
    return this.#options.start(this.#file(this.dead.length), this.#batchesPut);
  }

  #file(n: number): string {
    return path.join(this.#options.histories, `${this.name}.${n}.jsonl`);
  }
}

export interface Race {
  readonly producers: readonly Role[];
  readonly workers: readonly Role[];
  readonly roles: readonly Role[];
}

export interface RaceOptions {
  readonly location: string;
  readonly leaseMs: number;
  readonly maxPendingJobs: number;
}

/** Three producers and three workers of each language. Some workers claim by hand, others leave that to a `Worker`. */
export function startRace({ location, leaseMs, maxPendingJobs }: RaceOptions): Race {
  const histories = tempDirectory();
  const producers: Role[] = [];
  const workers: Role[] = [];
  for (const language of ["node", "python"] as const) {
    for (const n of [0, 1, 2]) {
      const name = `${language}-producer-${n}`;
      const produce = (history: string, put: number): Program => {
        const program = start(language, "producer", { location, history, maxPendingJobs });
        program.tell(batchesOf(name).slice(put));
        return program;
      };
      producers.push(new Role({ name, language, slots: 0, histories, start: produce }));
      const byHand = n === 0 || (n === 1 && language === "python");
      const slots = language === "node" && !byHand ? 4 : 1;
      const work = (history: string): Program =>
        start(language, "worker", { location, history, leaseMs, byHand, concurrency: slots });
      workers.push(new Role({ name: `${language}-worker-${n}`, language, slots, histories, start: work }));
    }
  }
  return { producers, workers, roles: [...producers, ...workers] };
}

function start(language: ProcessHistory["language"], what: "producer" | "worker", input: object): Program {
  if (language === "node") return new Program(`../interop/programs/race-${what}.mjs`, input);
  return new Program(`../interop/python/race_${what}.py`, input, { interpreter: interpreterOf(CURRENT) });
}

export interface KillOptions {
  /** How often each of the twelve is killed. */
  readonly each: number;
  readonly random: Random;
  /** How many of the jobs are done. */
  readonly done: () => Promise<number>;
  readonly jobs: number;
}

/** Kills each of them in the middle of its work: producers after a part of their own, workers after a part of all. */
export async function killsOf({ roles, producers }: Race, { each, random, done, jobs }: KillOptions): Promise<void> {
  const plan = roles.map((role) => {
    const kills = Array.from({ length: each }, (_, n) => {
      return { after: ((n + 0.1 + random.next() * 0.8) / each) * 0.85, pauseMs: random.next() * 5 };
    });
    return { role, kills };
  });
  const batches = batchesOf("").length;
  const killInTurn = async ({ role, kills }: (typeof plan)[number]): Promise<void> => {
    const progress = async (): Promise<number> =>
      producers.includes(role) ? role.batchesPut / batches : (await done()) / jobs;
    for (const { after, pauseMs } of kills) {
      await until(async () => (await progress()) >= after, 100_000);
      await sleep(pauseMs); // at any moment
      await role.kill();
    }
  };
  await Promise.all(plan.map(killInTurn));
}
