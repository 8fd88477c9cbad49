/** Sizes in the format of SQLite's write-ahead log. */
export const LOG_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/** The commits of a write-ahead log, as far as its frames belong together. */
export interface LogShape {
  readonly frameBytes: number;
  /** Frames that count; behind them may be some of an earlier use of the file. */
  readonly frames: number;
  /** How many commits are complete within the first frames: by the number of frames, from 0. */
  readonly commitsWithin: readonly number[];
}

/** What tells one use of the file from another. */
export function saltsOf(log: Buffer): Buffer {
  return log.subarray(16, 24);
}

/** Reads the headers of the frames; that checksums are right is SQLite's to find out. */
export function shapeOf(log: Buffer): LogShape {
  const frameBytes = FRAME_HEADER_BYTES + (log.length < LOG_HEADER_BYTES ? 0 : log.readUInt32BE(8));
  const salts = saltsOf(log);
  const commitsWithin = [0];
  for (let at = LOG_HEADER_BYTES; at + frameBytes <= log.length; at += frameBytes) {
    if (!log.subarray(at + 8, at + 16).equals(salts)) break;
    // The size of the database in pages, if the frame ends a transaction.
    const commits = log.readUInt32BE(at + 4) === 0 ? 0 : 1;
    commitsWithin.push((commitsWithin.at(-1) as number) + commits);
  }
  return { frameBytes, frames: commitsWithin.length - 1, commitsWithin };
}

/** Where the frame with that number, from 0, begins. */
export function frameAt({ frameBytes }: LogShape, frame: number): number {
  return LOG_HEADER_BYTES + frame * frameBytes;
}
