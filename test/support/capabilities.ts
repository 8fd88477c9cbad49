import { onPostgres } from "./location.ts";

/** What not every storage has, and why: a test that is about one of these runs where it is there. */
export const CAPABILITIES = {
  backup: "We copy a file while it is in use; a server is backed up with pg_dump, or by whoever runs it.",
  files: "A directory holds the whole queue, which can be moved, replaced or damaged; a server keeps its files itself.",
  python: "The Python package shares the file; it knows no PostgreSQL.",
  thread: "SQLite runs in a thread of the program, which may die alone; a server is reached through sockets.",
} as const;

/** What PostgreSQL has of these: nothing so far. */
const ON_POSTGRES: readonly Capability[] = [];

export type Capability = keyof typeof CAPABILITIES;

/** Whether the storage of this run does without; to be given to `test.skipIf`. */
export function lacks(capability: Capability): boolean {
  return onPostgres && !ON_POSTGRES.includes(capability);
}
