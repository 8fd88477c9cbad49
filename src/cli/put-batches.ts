import type { Enqueued, EnqueueItem, SimpleQueue } from "../index.ts";

/** Larger batches are hardly faster, and what lives for longer has V8 enlarge its heap. */
const BATCH_JOBS = 500;
const BATCH_CHARACTERS = 1024 * 1024;
const BATCHES_UNDER_WAY = 2;
/** A job beyond this goes alone. */
const CHARACTERS_UNDER_WAY = 64 * 1024 * 1024;

/** A payload as `putMany` takes it; without options of its own, the text alone. */
export type Item = string | EnqueueItem<string>;

/** Checks the payload; throws a `Failure` that says what is wrong: "is not valid JSON". */
export type ItemMaker = (payload: string) => Item;

/** What became of the jobs that were put so far. */
export interface PutReport {
  /** Jobs that were added. */
  readonly put: number;
  /** Jobs whose jobId was known already. */
  readonly known: number;
  /** The lowest and the highest id that was added. */
  readonly firstId: number | null;
  readonly lastId: number | null;
}

/**
 * Puts jobs in batches. As long as fewer than two are under way, what was gathered goes as soon as the input pauses,
 * so that a slow producer's jobs do not wait for others; else it gathers, and at the size of a batch the producer waits.
 */
export class PutBatches {
  report: PutReport = { put: 0, known: 0, firstId: null, lastId: null };
  readonly #queue: SimpleQueue<string>;
  readonly #onProgress: () => void;
  readonly #underWay = new Set<Promise<void>>();
  #charactersUnderWay = 0;
  #gathered: Item[] = [];
  #characters = 0;
  #fault: { readonly error: unknown } | undefined;

  constructor(queue: SimpleQueue<string>, onProgress: () => void) {
    this.#queue = queue;
    this.#onProgress = onProgress;
  }

  /** Whether `flush` is due before more is added. */
  get isFull(): boolean {
    return this.#gathered.length >= BATCH_JOBS || this.#characters >= BATCH_CHARACTERS;
  }

  add(item: Item): void {
    this.#gathered.push(item);
    this.#characters += (typeof item === "string" ? item : item.data).length;
  }

  /** Resolves when what was gathered is under way. Throws why an earlier batch could not be put. */
  async flush(): Promise<void> {
    this.send();
    while (this.#gathered.length > 0 && this.#fault === undefined) await Promise.race(this.#underWay);
    if (this.#fault !== undefined) throw this.#fault.error;
  }

  /** Sends what was gathered, if there is room for it. */
  send(): void {
    if (this.#gathered.length === 0 || !this.#hasRoom || this.#fault !== undefined) return;
    const [items, characters] = [this.#gathered, this.#characters];
    [this.#gathered, this.#characters] = [[], 0];
    this.#charactersUnderWay += characters;
    const batch = this.#put(items).finally(() => {
      this.#underWay.delete(batch);
      this.#charactersUnderWay -= characters;
      this.send(); // the input may be waiting, too
    });
    this.#underWay.add(batch);
  }

  /** Resolves when all is committed; rejects when all is that can be. */
  async end(): Promise<void> {
    this.send();
    while (this.#underWay.size > 0) await Promise.race(this.#underWay);
    if (this.#fault !== undefined) throw this.#fault.error;
  }

  get #hasRoom(): boolean {
    if (this.#underWay.size === 0) return true;
    return (
      this.#underWay.size < BATCHES_UNDER_WAY && this.#charactersUnderWay + this.#characters <= CHARACTERS_UNDER_WAY
    );
  }

  async #put(items: readonly Item[]): Promise<void> {
    try {
      this.#count(await this.#queue.putMany(items));
      this.#onProgress();
    } catch (error) {
      this.#fault ??= { error };
    }
  }

  #count(results: readonly Enqueued[]): void {
    let { put, known, firstId, lastId } = this.report;
    for (const { id, inserted } of results) {
      if (!inserted) known++;
      else {
        put++;
        firstId ??= id;
        lastId = id;
      }
    }
    this.report = { put, known, firstId, lastId };
  }
}
