import { randomUUID } from "node:crypto";
import path from "node:path";
import { tempDirectory } from "./temp.ts";

/** Where the PostgreSQL server of the run is; without one, the tests use files. See vitest.postgres.config.ts. */
const SERVER = process.env["TEST_POSTGRES_URL"];

export const onPostgres: boolean = SERVER !== undefined;

/** A place for queues that is the test's own: a directory, or a schema of the server. */
export function tempLocation(): string {
  return SERVER === undefined ? tempDirectory() : `${SERVER}?schema=test_${randomUUID().replaceAll("-", "")}`;
}

/** The same, but nothing of it is there yet. */
export function unmadeLocation(): string {
  return onPostgres ? tempLocation() : path.join(tempDirectory(), "not", "made");
}

/** Whether it is a URL of PostgreSQL, else it is a directory. */
export function isOnPostgres(location: string): boolean {
  return /^postgres(ql)?:/.test(location);
}
