import { performance } from "node:perf_hooks";
import type { StorageError } from "../../errors.ts";
import type { Step } from "./group-commit.ts";
import type { Stretch, Transitions } from "./transitions.ts";

/** How long the work of a slice takes; its COMMIT comes on top of that. */
const SLICE_MS = 2;
/** A slice goes from stretch to stretch; each is to be short, so that the slice does not become much longer than that. */
const STRETCH_MS = 0.5;
const STRETCH_ROWS = { first: 50, most: 1000 };
/** Large payloads are spread over pages that have to be read one after the other. */
const STRETCH_BYTES = 256 * 1024;

/** What was done on a stretch. */
export interface Visit {
  readonly changed: number;
  /** There is nothing more to do on this path, or nothing more that can be done. */
  readonly over?: boolean | "full";
}

/** Along which rows to walk, and what to do there. */
export interface Path {
  /** Along the dead letters of this queue; absent = along all rows of the file. */
  readonly failedOf?: string;
  /** May be called again for the same stretch. */
  visit(transitions: Transitions, stretch: Stretch): Visit;
}

interface Position {
  /** The number of the path. */
  readonly path: number;
  readonly after: number;
  /** Rows that are added later are not visited. */
  readonly end: number | undefined;
}

/**
 * A walk along the rows, from the lowest id up, in slices of about the same short time: each is a step of a transaction
 * of its own, so that others can work in between.
 */
export class Walk {
  readonly #paths: readonly Path[];
  #position: Position = { path: 0, after: 0, end: undefined };
  #rows = STRETCH_ROWS.first;
  changed = 0;
  /** It ended because there was no more room. */
  full = false;

  constructor(paths: readonly Path[]) {
    this.#paths = paths;
  }

  get over(): boolean {
    return this.#position.path >= this.#paths.length;
  }

  /** The next slice. `ended` is told once it is committed, or why it failed; until then it may be asked for again. */
  slice(fsync: boolean, ended: (error?: StorageError) => void): Step {
    let changed = 0;
    let position = this.#position;
    return {
      fsync,
      compound: true,
      execute: (transitions) => {
        changed = 0;
        this.full = false;
        position = this.#position;
        const startedAt = performance.now();
        for (let now = startedAt; now - startedAt < SLICE_MS && position.path < this.#paths.length; ) {
          const visit = this.#advance(transitions, position);
          position = visit.position;
          changed += visit.changed;
          const before = now;
          now = performance.now();
          if (visit.visited) this.#adapt(now - before);
        }
      },
      succeed: () => {
        this.#position = position;
        this.changed += changed;
        ended();
      },
      fail: ended,
    };
  }

  #advance(transitions: Transitions, position: Position): { position: Position; changed: number; visited: boolean } {
    const { path: number, after, end: known } = position;
    const path = this.#paths[number] as Path;
    const end = known ?? transitions.lastId(path.failedOf);
    const last = this.#lastOfStretch(transitions, after, end, path.failedOf);
    const next = { path: number + 1, after: 0, end: undefined };
    if (last === undefined) return { position: next, changed: 0, visited: false };
    const { changed, over = false } = path.visit(transitions, { after, last });
    this.full = over === "full";
    const done = over !== false || last >= end;
    return { position: done ? next : { path: number, after: last, end }, changed, visited: true };
  }

  #lastOfStretch(transitions: Transitions, after: number, end: number, failedOf?: string): number | undefined {
    for (;;) {
      const stretch = transitions.stretch(after, end, this.#rows, failedOf);
      if (stretch === undefined) return undefined;
      if (stretch.bytes <= STRETCH_BYTES || this.#rows === 1) return stretch.last;
      this.#rows = Math.max(1, Math.floor((this.#rows * STRETCH_BYTES) / stretch.bytes / 2));
    }
  }

  #adapt(tookMs: number): void {
    const factor = Math.min(2, Math.max(0.25, STRETCH_MS / Math.max(tookMs, 0.01)));
    this.#rows = Math.min(STRETCH_ROWS.most, Math.max(1, Math.round(this.#rows * factor)));
  }
}
