/** What threads tell each other about a handler, in memory that they share: one cell for each slot of a consumer. */

/** Cells of a consumer's slots: what became of the delivery that the engine last put there. */
export const SLOT = { waiting: 0, returned: -1, ended: -2 } as const;

const CELL_TIME = 0x3fff_ffff;

/** A moment as it is kept in a cell: positive, and good for intervals of up to six days. */
export function cellTime(ms: number): number {
  return ms & CELL_TIME || 1;
}

/** Milliseconds from the moment in a cell until `now`; the other side may have written it a moment after `now`. */
export function elapsedSince(cell: number, now: number): number {
  const elapsed = (now - cell) & CELL_TIME;
  return elapsed > CELL_TIME / 2 ? 0 : elapsed;
}
