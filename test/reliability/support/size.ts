import { appendFileSync } from "node:fs";

/**
 * How much a layer does. By default the size that CI can afford; a campaign sets
 * - `RELIABILITY_MINUTES`: goes on for so long instead,
 * - `RELIABILITY_SEED`: the first seed, those of the other rounds follow it,
 * - `RELIABILITY_ROUNDS`: so many rounds, whatever the time,
 * - `RELIABILITY_PART`: that part, from 0 to 1, of the size of CI, for what was proved on another runtime already,
 * - `RELIABILITY_REPORT`: a file to which a line of JSON per layer is appended.
 */
const MINUTES: number | undefined = numberFrom("RELIABILITY_MINUTES");
const SEED: number | undefined = numberFrom("RELIABILITY_SEED");
const ROUNDS: number | undefined = numberFrom("RELIABILITY_ROUNDS");
const PART: number = numberFrom("RELIABILITY_PART") ?? 1;

/** Less than so many of the planned faults leaves the verdict unknown. */
const DELIVERED_AT_LEAST = 0.9;
const LARGEST_SEED = 0x7fff_ffff;

export interface LayerOptions {
  /** As its file is called. */
  readonly name: string;
  /** How many rounds in CI. */
  readonly rounds: number;
  /** After how many seconds no further round begins in CI. Default: never. */
  readonly seconds?: number;
}

/** One layer of the proof: its rounds, each with a seed, and the count of what it did. */
export class Layer {
  readonly name: string;
  readonly #options: LayerOptions;
  readonly #startedAt: number = performance.now();
  /** In CI always the same, so that what fails there is the change; new ones are for campaigns. */
  readonly #firstSeed: number = SEED ?? (MINUTES === undefined ? 1 : Math.floor(Math.random() * LARGEST_SEED));
  readonly #counts: Record<string, number> = {};
  #planned = 0;
  #delivered = 0;
  #rounds = 0;

  constructor(options: LayerOptions) {
    this.name = options.name;
    this.#options = options;
    print(`reliability ${this.name}: first seed ${this.#firstSeed}`);
  }

  /** Milliseconds until no further round begins; in CI and without a limit: Infinity. */
  get leftMs(): number {
    const seconds = MINUTES === undefined ? (this.#options.seconds ?? Number.POSITIVE_INFINITY) * PART : MINUTES * 60;
    return seconds * 1000 - (performance.now() - this.#startedAt);
  }

  /** Of what a round consists of, as much as is to be done, spread over all of it: with another seed others. */
  partOf<T>(all: readonly T[], seed: number): T[] {
    const few = Math.max(1, Math.round(all.length * PART));
    return Array.from({ length: few }, (_, i) => all[(seed + Math.floor(i / PART)) % all.length] as T);
  }

  /** Whether this is more than CI can afford. */
  get isCampaign(): boolean {
    return MINUTES !== undefined;
  }

  /** The seeds of the rounds, as long as there are rounds to do. */
  *seeds(): Generator<number> {
    const inCi = Math.max(1, Math.round(this.#options.rounds * PART));
    const rounds = ROUNDS ?? (MINUTES === undefined ? inCi : Number.POSITIVE_INFINITY);
    for (let round = 0; round < rounds && this.leftMs > 0; round++) {
      this.#rounds++;
      yield (this.#firstSeed + round) % LARGEST_SEED;
    }
  }

  /** The command that repeats a round. */
  replay(seed: number): string {
    return `RELIABILITY_SEED=${seed} RELIABILITY_ROUNDS=1 npm run test:reliability -- ${this.name}`;
  }

  /** Runs a round; if it fails, says how to repeat it. */
  async round(seed: number, run: () => unknown): Promise<void> {
    try {
      await run();
    } catch (error) {
      const message = `${error instanceof Error ? error.message : String(error)}\nTo repeat it: ${this.replay(seed)}`;
      throw new Error(message, { cause: error });
    }
  }

  /** Faults that are meant to happen: kills, cuts, errors, … */
  planned(faults = 1): void {
    this.#planned += faults;
  }

  /** Faults that did happen. */
  delivered(faults = 1): void {
    this.#delivered += faults;
  }

  /** Anything else that is worth a figure in the report. */
  count(what: string, n = 1): void {
    this.#counts[what] = (this.#counts[what] ?? 0) + n;
  }

  /** To be called at the end. Throws if so little happened that nothing was proved. */
  done(): void {
    const report = {
      layer: this.name,
      firstSeed: this.#firstSeed,
      rounds: this.#rounds,
      planned: this.#planned,
      delivered: this.#delivered,
      ...this.#counts,
      seconds: Math.round((performance.now() - this.#startedAt) / 1000),
    };
    print(`reliability ${this.name}: ${JSON.stringify(report)}`);
    const file = process.env["RELIABILITY_REPORT"];
    if (file !== undefined) appendFileSync(file, `${JSON.stringify(report)}\n`);
    if (this.#rounds === 0) throw new Error(`${this.name}: unknown, because there was no time for a single round`);
    if (this.#delivered < this.#planned * DELIVERED_AT_LEAST) {
      throw new Error(`${this.name}: unknown, because only ${this.#delivered} of ${this.#planned} faults happened`);
    }
  }
}

function numberFrom(variable: string): number | undefined {
  const text = process.env[variable];
  if (text === undefined || text === "") return undefined;
  const value = Number(text);
  if (!Number.isFinite(value) || value < 0) throw new Error(`${variable} is ${text}, which is no number`);
  return value;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
