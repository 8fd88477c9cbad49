import { median } from "../../cost/support/rounds.mjs";
import { quick, ROUNDS } from "./size.mjs";
import { Turns } from "./turns.mjs";

/** A side's rounds in a workload. */
class Entry {
  rounds = [];
  failure;
  #turns;
  #memory = {};

  constructor(workload, side, servers) {
    this.workload = workload;
    this.side = side;
    this.servers = servers;
  }

  /** Fills the file of a workload that keeps it, and lets one that adapts find its size. Not counted. */
  async prepare() {
    const { workload, side, servers } = this;
    await this.#try(async () => {
      if (workload.keeps) {
        this.#turns = new Turns();
        await this.#turns.begin((next) => workload.run(side, servers, this.#memory, next));
      }
      if (workload.adapts && !quick) await this.#one();
    });
  }

  async round() {
    if (this.failure === undefined) await this.#try(async () => this.rounds.push(await this.#one()));
  }

  async end() {
    if (this.#turns !== undefined) await this.#try(() => this.#turns.end());
  }

  #one() {
    if (this.#turns !== undefined) return this.#turns.step();
    return this.workload.round(this.side, this.servers, this.#memory);
  }

  async #try(work) {
    try {
      await work();
    } catch (error) {
      this.failure ??= error.message;
    }
  }
}

const own = (entries, side) =>
  entries.find((entry) => entry.side.adapter === entries[0].side.adapter && entry.side.fsync === side.fsync);

/** How many times better ours was: the median of the rounds, each beside ours of the same round. */
function advantage(workload, mine, entry) {
  // A growth may be nothing, or less.
  if (mine === undefined || mine === entry || workload.unit === "MB") return undefined;
  const ratios = [];
  for (const [index, { value }] of entry.rounds.entries()) {
    const ours = mine.rounds[index]?.value;
    if (ours === undefined) continue;
    ratios.push(isRate(workload) ? ours / value : value / ours);
  }
  if (!ratios.every(Number.isFinite)) return undefined;
  return ratios.length === 0 ? undefined : median(ratios);
}

/** A rate, or the evenness of processes: more is better. */
export const isRate = ({ unit }) => unit === "per second" || unit === "ratio";

function summary(workload, entries, entry) {
  const { side, rounds, failure } = entry;
  if (failure !== undefined && rounds.length === 0) return { side: side.key, reason: failure };
  const wrong = [...new Set(rounds.flatMap((round) => round.wrong))];
  const values = rounds.map(({ value }) => value);
  const result = {
    side: side.key,
    value: median(values),
    rounds: values,
    jobs: median(rounds.map(({ jobs }) => jobs)),
    ours: advantage(workload, own(entries, side), entry),
    note: rounds.at(-1).note,
    p99: rounds[0].p99 === undefined ? undefined : median(rounds.map(({ p99 }) => p99)),
  };
  if (wrong.length > 0) result.wrong = wrong;
  if (failure !== undefined) result.reason = failure;
  return result;
}

/** All sides of a workload in turn, round after round; who comes first changes. The first side is ours. */
export async function compare(workload, sides, servers, tell) {
  const results = [];
  const entries = [];
  for (const side of sides) {
    const reason = workload.takes(side);
    if (reason === undefined) entries.push(new Entry(workload, side, servers));
    else results.push({ side: side.key, declined: reason });
  }
  for (const entry of entries) {
    tell(`${entry.side.key} …`);
    await entry.prepare();
  }
  const rounds = workload.rounds ?? ROUNDS;
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < entries.length; turn++) {
      const entry = entries[(turn + round) % entries.length];
      tell(`round ${round + 1} of ${rounds}: ${entry.side.key} …`);
      await entry.round();
    }
  }
  for (const entry of entries) await entry.end();
  return [...entries.map((entry) => summary(workload, entries, entry)), ...results];
}
