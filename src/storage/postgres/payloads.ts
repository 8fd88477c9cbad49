/** Payloads on their way to the server, and back. */

/** The sign for what is not UTF-8, and a byte order mark at the beginning, which a decoder would take off. */
const UNFAITHFUL = /\uFFFD|^\uFEFF/;

/** Many payloads one behind the other, and where each of them begins, counted from 1. */
export interface Packed {
  readonly bytes: Buffer;
  readonly starts: readonly number[];
  readonly lengths: readonly number[];
}

export function pack(payloads: readonly Uint8Array[]): Packed {
  const starts: number[] = [];
  let end = 1;
  for (const { length } of payloads) {
    starts.push(end);
    end += length;
  }
  return { bytes: Buffer.concat(payloads), starts, lengths: payloads.map(({ length }) => length) };
}

/** The payload as it was read, in hex: as text if that is wanted, and stands for the very same bytes. */
export function payloadOf(hex: unknown, asText: boolean): Uint8Array | string {
  const bytes = Buffer.from(hex as string, "hex");
  if (asText) {
    const text = bytes.toString();
    if (!UNFAITHFUL.test(text)) return text;
  }
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
}
