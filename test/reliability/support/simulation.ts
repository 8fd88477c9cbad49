import { rmSync } from "node:fs";
import { openDatabase } from "../../support/database.ts";
import { TestClock } from "../../support/engine-harness.ts";
import { faultsOf } from "../../support/inspect.ts";
import { PYTHON_INDEX } from "../../support/python-files.ts";
import { Random } from "../../support/random.mjs";
import { check, type Findings } from "./checker.ts";
import { drain, finalRows } from "./drain.ts";
import { memoryDirectory } from "./memory-directory.ts";
import { errorOf, SimulatedProcess, type World } from "./simulated-process.ts";
import { Story } from "./story.ts";

const QUEUES = ["a", "b"];
const STEPS = 300;
/** Longer than any lease or delay. */
const LONG_MS = 60_000;

/**
 * Some processes on one file, in one thread: who does what next, how much time passes and what fails is decided by a
 * seed. SQLite lets one write at a time, so what can come of their transactions is what comes of them in some order.
 */
export class Simulation {
  readonly #random: Random;
  readonly #clock: TestClock = new TestClock();
  readonly #world: World;
  readonly #processes: SimulatedProcess[];
  readonly #setsClock: boolean;
  #events = 0;
  #names = 0;
  kills = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.#setsClock = this.#random.chance(0.2);
    this.#world = {
      directory: memoryDirectory(),
      clock: this.#clock,
      random: this.#random,
      // Only the order of events matters, and at one moment there may be many.
      story: new Story(() => ({ mono: ++this.#events, wall: this.#clock.wall })),
      queues: QUEUES,
      newName: () => `job ${++this.#names}`,
      knownIds: [],
    };
    const processes = this.#random.between(2, 4);
    this.#processes = Array.from({ length: processes }, (_, i) => new SimulatedProcess(`p${i}`, this.#world));
  }

  get planted(): number {
    return this.#processes.reduce((sum, { planted }) => sum + planted.length, 0);
  }

  get struck(): number {
    return this.#processes.flatMap(({ planted }) => planted).filter(({ struck }) => struck > 0).length;
  }

  run(): Findings {
    for (const process of this.#processes) process.start();
    for (let step = 0; step < STEPS; step++) this.#step();
    for (const process of this.#processes) {
      process.driver.heal();
      process.hear();
      process.kill();
    }
    this.#clock.advance(LONG_MS);
    drain(this.#world.directory, QUEUES, this.#clock, this.#world.story);
    const history = this.#world.story.entries;
    const faults = faultsOf(this.#world.directory);
    const clockSkewMs = this.#setsClock ? Number.POSITIVE_INFINITY : 0;
    return check({ history, rows: finalRows(this.#world.directory), drained: true, faults, clockSkewMs });
  }

  close(): void {
    rmSync(this.#world.directory, { recursive: true, force: true });
  }

  #step(): void {
    const process = this.#random.pick(this.#processes);
    if (!process.alive) {
      if (this.#random.chance(0.3)) this.#plantAtOpening(process);
      process.start();
      return;
    }
    const action = this.#random.weighted({
      step: 40,
      stall: 1,
      hear: 15,
      put: 6,
      burst: 0.5,
      dispatch: 2,
      claim: 14,
      settle: 12,
      rush: 0.5,
      extend: 2,
      operate: 3,
      time: 12,
      fault: 8,
      kill: 1.5,
      clock: this.#setsClock ? 1 : 0,
      python: this.#random.chance(0.02) ? 1 : 0,
    });
    switch (action) {
      case "stall":
        process.stepWithoutSignOfLife();
        break;
      case "time":
        this.#clock.advance(this.#random.pick([1, 1, 5, 20, 100, 400, 1000, 3000]));
        break;
      case "clock":
        this.#clock.wall += this.#random.pick([-3_600_000, -5000, -500, 500, 5000, 3_600_000]);
        break;
      case "fault":
        this.#plant(process);
        process.step();
        break;
      case "python":
        // A client of the Python package comes: from then on triggers keep the counts.
        this.#comeFromPython();
        break;
      case "kill":
        this.kills++;
        process.kill();
        break;
      default:
        process[action]();
    }
  }

  #comeFromPython(): void {
    const database = openDatabase(this.#world.directory);
    database.exec(PYTHON_INDEX);
    database.close();
  }

  #plant(process: SimulatedProcess): void {
    const random = this.#random;
    // A fault strikes only where there is something to do.
    process.put();
    const kind = random.weighted({ begin: 2, commit: 5, statement: 3, between: 1 });
    const times = random.chance(0.8) ? 1 : random.between(2, 4);
    const broken = (): Error => errorOf(random, "IOERR_WRITE", "IOERR_FSYNC", "FULL", "IOERR_READ", "NOMEM");
    switch (kind) {
      case "begin": {
        const error = random.chance(0.7) ? errorOf(random, "BUSY") : errorOf(random, "IOERR_READ", "CANTOPEN");
        process.plant({ at: "BEGIN IMMEDIATE", error, times });
        break;
      }
      case "commit": {
        const really = random.pick(["nothing", "executes", "rolls back"] as const);
        process.plant({ at: "COMMIT", error: broken(), really, times });
        // Before it can look what became of it, somebody else does something.
        if (random.chance(0.5)) this.#interrupt(process, 1);
        break;
      }
      case "statement": {
        const really = random.pick(["nothing", "nothing", "rolls back"] as const);
        const error = random.chance(0.7) ? broken() : errorOf(random, "CONSTRAINT");
        const after = random.between(0, 2);
        process.plant({ at: /^(INSERT|UPDATE|DELETE|SAVEPOINT|RELEASE)/, after, error, really, times });
        break;
      }
      case "between":
        this.#interrupt(process, 0);
        break;
    }
  }

  /** Before a process can begin a transaction, another one does something. */
  #interrupt(process: SimulatedProcess, after: number): void {
    const others = this.#processes.filter((other) => other !== process);
    process.plant({ at: "BEGIN IMMEDIATE", after, strikes: () => this.#random.pick(others).step() });
  }

  #plantAtOpening(process: SimulatedProcess): void {
    const error = errorOf(this.#random, "BUSY", "IOERR_READ", "CANTOPEN", "FULL");
    process.plant({ at: /./, after: this.#random.between(0, 20), error });
  }
}
