import type { Socket } from "node:net";
import type { ClientBase } from "pg";
import { StorageError } from "../../errors.ts";
import { clearTimeout, setImmediate, setTimeout } from "../../timers.ts";

/** What `pg` gives, of which its types do not tell everything. */
export interface Client extends ClientBase {
  end(): Promise<void>;
  /** Whether statements may be sent without waiting for the answers to those before. */
  readonly pipeline?: boolean;
  /** Whether the process is kept alive by its socket. */
  ref(): void;
  unref(): void;
}

/** A row as it was read: numbers, texts, truth values and `null`. */
export type Row = { readonly [column: string]: unknown };

/**
 * A connection on which nothing comes for so long, though an answer is due, is lost, even if nothing says so. Noticed
 * within twice that: an answer to what was sent before begins the time anew.
 */
export const HUNG_MS = 8000;
/** What is large takes a while to get there: so many bytes a millisecond at least. */
const SLOWEST_UPLOAD = 200;

const BOOLEAN = 16;
const NUMBERS: readonly number[] = [20, 21, 23];

/** The program may have told `pg` to read some types in its own way; that is not for us. Payloads come as hex. */
const types = {
  getTypeParser: ((type: number) => {
    if (NUMBERS.includes(type)) return Number;
    if (type === BOOLEAN) return (text: string) => text === "t";
    return String;
  }) as never,
};

/** Runs one statement. Without a name, so that poolers of connections need not remember it. */
export async function query(
  client: Client,
  text: string,
  values: readonly unknown[] = [],
  hungMs: number = HUNG_MS,
): Promise<Row[]> {
  return (await answerTo(client, { text, values, hungMs })).rows;
}

/** Ends the transaction: what it did has happened when this resolves. */
export async function commit(client: Client, hungMs: number): Promise<void> {
  const { command } = await answerTo(client, { text: "COMMIT", values: [], hungMs });
  // A transaction in which a statement failed is undone without an error.
  if (command !== "COMMIT") throw new StorageError("IO", "The server has undone a transaction. Look at its log.");
}

async function answerTo(
  client: Client,
  { text, values, hungMs }: { readonly text: string; readonly values: readonly unknown[]; readonly hungMs: number },
): Promise<{ readonly rows: Row[]; readonly command: string }> {
  const forget = watch(client, hungMs);
  try {
    return await client.query<{ [column: string]: unknown }>({ text, values: values as unknown[], types });
  } finally {
    forget();
  }
}

/** How long the payloads of a statement may take to get to the server, in milliseconds. */
export function uploadMs(values: readonly unknown[]): number {
  return values.reduce<number>((sum, value) => sum + (Buffer.isBuffer(value) ? value.length / SLOWEST_UPLOAD : 0), 0);
}

/** Cuts the connection if nothing comes for so long: a large answer may take longer as a whole. */
function watch(client: Client, ms: number): () => void {
  const stream = streamOf(client);
  if (stream === undefined || !Number.isFinite(ms)) return () => {};
  let isOver = false;
  let { bytesRead } = stream;
  // After a long block of the event loop answers, which wait too, are read first.
  const look = (): void => void setImmediate(judge);
  const judge = (): void => {
    if (isOver) return;
    if (stream.bytesRead === bytesRead) cut(client);
    else timer = setTimeout(look, ms).unref();
    bytesRead = stream.bytesRead;
  };
  let timer = setTimeout(look, ms).unref();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

/** Whoever waits for an answer of this connection is told at once that there will be none. */
export function cut(client: Client): void {
  streamOf(client)?.destroy();
}

function streamOf(client: Client): Socket | undefined {
  return (client as unknown as { connection?: { stream?: Socket } }).connection?.stream;
}
