import { Failure } from "./failures.ts";

/** A line of JSON, without the white space around it. */
export interface Line {
  /** 1 for the first line. */
  readonly number: number;
  readonly bytes: Uint8Array;
}

/** Longer ones would fill the memory, and no job should be that large. */
const LONGEST_LINE = 128 * 1024 * 1024;

const LINE_FEED = 0x0a;
/** Those of JSON. */
const BLANKS: readonly (number | undefined)[] = [0x20, 0x09, LINE_FEED, 0x0d];
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/** The lines of a stream that are not blank, as they come: those of one piece of input together. */
export async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Line[], void, undefined> {
  let number = 1;
  /** The beginning of a line whose end has not been read yet. */
  let pieces: Uint8Array[] = [];
  let length = 0;

  const add = (piece: Uint8Array): void => {
    length += piece.length;
    if (length > LONGEST_LINE) throw new Failure(`Line ${number} is longer than ${LONGEST_LINE >> 20} MiB.`);
    pieces.push(piece);
  };
  const take = (): Line => {
    const whole = pieces.length === 1 ? (pieces[0] as Uint8Array) : Buffer.concat(pieces);
    [pieces, length] = [[], 0];
    const line = { number, bytes: trim(number === 1 ? withoutMark(whole) : whole) };
    number++;
    return line;
  };

  for await (const chunk of chunks) {
    const lines: Line[] = [];
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, start)) {
      add(chunk.subarray(start, end));
      const line = take();
      if (line.bytes.length > 0) lines.push(line);
      start = end + 1;
    }
    if (lines.length > 0) yield lines;
    if (start < chunk.length) add(chunk.subarray(start));
  }
  const last = take();
  if (last.bytes.length > 0) yield [last];
}

function withoutMark(bytes: Uint8Array): Uint8Array {
  return BYTE_ORDER_MARK.equals(bytes.subarray(0, 3)) ? bytes.subarray(3) : bytes;
}

/** Without the white space around it. */
export function trim(bytes: Uint8Array): Uint8Array {
  let [start, end] = [0, bytes.length];
  while (start < end && BLANKS.includes(bytes[start])) start++;
  while (end > start && BLANKS.includes(bytes[end - 1])) end--;
  return start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end);
}

/** A byte order mark counts as a character: it is welcome at the very beginning only, and JSON knows none. */
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What the JSON means. Throws what is wrong, never quoting the text: "is not valid JSON". */
export function parseJson(bytes: Uint8Array): unknown {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    // biome-ignore lint/style/useErrorCause: there is no more to it
    throw new Failure("is not valid UTF-8");
  }
  try {
    return JSON.parse(text);
  } catch {
    // biome-ignore lint/style/useErrorCause: the messages of JSON.parse quote the text
    throw new Failure("is not valid JSON");
  }
}
