import { isUtf8 } from "node:buffer";
import { Failure } from "./failures.ts";

/** Some consecutive lines, each without the white space around it; a blank one is "". */
export interface Lines {
  /** The number of the first of them; 1 at the very beginning. */
  readonly firstNumber: number;
  readonly texts: readonly string[];
}

/** Longer ones would fill the memory, and no job should be that large. */
const LONGEST_LINE = 128 * 1024 * 1024;

const LINE_FEED = 0x0a;
/** Those of JSON: space, tab, line feed, carriage return. */
const BLANKS: readonly number[] = [0x20, 0x09, LINE_FEED, 0x0d];
/** Welcome at the very beginning only: JSON knows none. */
const BYTE_ORDER_MARK = "\uFEFF";

/**
 * The lines of a stream, as they come. What comes together is decoded together, and its lines are slices of one text:
 * with millions of lines, it is the objects that each one needs that cost time and memory.
 */
export async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Lines, void, undefined> {
  let firstNumber = 1;
  /** The beginning of a line whose end has not been read yet. */
  let pieces: Buffer[] = [];
  let length = 0;

  const add = (piece: Buffer, lengthOfLine: number): void => {
    length += lengthOfLine;
    if (length > LONGEST_LINE) throw new Failure(`Line ${firstNumber} is longer than ${LONGEST_LINE >> 20} MiB.`);
    pieces.push(piece);
  };
  const take = function* (): Generator<Lines, void, undefined> {
    const bytes = pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
    [pieces, length] = [[], 0];
    const valid = isUtf8(bytes) ? bytes : bytes.subarray(0, lengthOfValidLines(bytes));
    const text = valid.toString();
    const texts = split(firstNumber === 1 && text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text);
    yield { firstNumber, texts };
    firstNumber += texts.length;
    if (valid !== bytes) throw new Failure(`Line ${firstNumber} is not valid UTF-8.`);
  };

  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(LINE_FEED) + 1;
    if (end > 0) {
      add(chunk.subarray(0, end), chunk.indexOf(LINE_FEED));
      yield* take();
    }
    if (end < chunk.length) add(chunk.subarray(end), chunk.length - end);
  }
  if (pieces.length > 0) yield* take();
}

/** Where the first line begins that is not UTF-8. */
function lengthOfValidLines(bytes: Buffer): number {
  let start = 0;
  for (;;) {
    const end = bytes.indexOf(LINE_FEED, start) + 1;
    if (end === 0 || !isUtf8(bytes.subarray(start, end))) return start;
    start = end;
  }
}

function split(text: string): string[] {
  const lines: string[] = [];
  let start = 0;
  for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
    lines.push(trim(text, start, end));
    start = end + 1;
  }
  if (start < text.length) lines.push(trim(text, start));
  return lines;
}

/** A text, or a part of one, without the white space around it. */
export function trim(text: string, start = 0, end: number = text.length): string {
  let [first, last] = [start, end];
  while (first < last && BLANKS.includes(text.charCodeAt(first))) first++;
  while (last > first && BLANKS.includes(text.charCodeAt(last - 1))) last--;
  return text.slice(first, last);
}

/** What the JSON means. Throws what is wrong, never quoting the text: "is not valid JSON". */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // biome-ignore lint/style/useErrorCause: the messages of JSON.parse quote the text
    throw new Failure("is not valid JSON");
  }
}
