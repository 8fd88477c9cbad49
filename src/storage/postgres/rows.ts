import type { Client } from "./connect.ts";

/** A row as it was read: numbers, texts, truth values and `null`. */
export type Row = { readonly [column: string]: unknown };

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
export async function query(client: Client, text: string, values: readonly unknown[] = []): Promise<Row[]> {
  const { rows } = await client.query<{ [column: string]: unknown }>({ text, values: values as unknown[], types });
  return rows;
}
