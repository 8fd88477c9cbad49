import type { ClientBase } from "pg";
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

/** Whoever gets no answer for so long has lost the connection, even if nothing says so. */
export const HUNG_MS = 8000;

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
  const forget = watch(client, hungMs);
  try {
    const { rows } = await client.query<{ [column: string]: unknown }>({ text, values: values as unknown[], types });
    return rows;
  } finally {
    forget();
  }
}

/** Cuts the connection if there is no answer in time. */
function watch(client: Client, ms: number): () => void {
  if (!Number.isFinite(ms)) return () => {};
  let isOver = false;
  // After a long block of the event loop answers, which wait too, are read first.
  const look = (): void => void setImmediate(() => isOver || cut(client));
  const timer = setTimeout(look, ms).unref();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

/** Whoever waits for an answer of this connection is told at once that there will be none. */
export function cut(client: Client): void {
  const { connection } = client as unknown as { connection?: { stream?: { destroy(): void } } };
  connection?.stream?.destroy();
}
