import path from "node:path";
import { fileURLToPath } from "node:url";
import { hiddenIn, hide } from "../brand.ts";
import { openPostgresStorage } from "./postgres/postgres-storage.ts";
import { type PostgresTarget, targetOf } from "./postgres-target.ts";
import { openSqliteStorage } from "./sqlite/sqlite-storage.ts";
import type { Storage, StorageSettings } from "./storage.ts";

/** What `postgres()` returns: a place for queues that takes more to say than a URL. */
export interface Location {
  readonly kind: "postgres";
  readonly schema: string;
}

const TARGET = Symbol.for("localqueue.PostgresTarget");

export function locationOf(target: PostgresTarget): Location {
  return Object.freeze(hide<Location>({ kind: "postgres", schema: target.schema }, TARGET, target));
}

/** The storage that a location stands for. Does no I/O: the first operation opens. */
export function openStorage(location: string | URL | Location, settings: StorageSettings): Storage {
  const place = placeOf(location);
  if (typeof place === "string") return openSqliteStorage(place, settings);
  return openPostgresStorage(place, settings);
}

/** A directory, or a database of PostgreSQL. */
export function placeOf(location: unknown): string | PostgresTarget {
  const target = hiddenIn<PostgresTarget>(location, TARGET);
  if (target !== undefined) return target;
  const text = location instanceof URL ? location.href : location;
  if (typeof text !== "string" || text === "" || text.includes("\0")) {
    const got = typeof text === "string" ? JSON.stringify(text) : typeof text;
    throw new TypeError(
      "Expected `location` to be a directory (a path or a file: URL), a postgres: URL, or what postgres() of " +
        `localqueue/postgres returns, got ${got}`,
    );
  }
  if (/^postgres(ql)?:/i.test(text)) return targetOf(text);
  if (/^file:/i.test(text)) return path.resolve(fileURLToPath(text));
  if (location instanceof URL || /^[a-z][a-z0-9+.-]+:\/\//i.test(text)) {
    throw new TypeError(
      `Expected \`location\` to be a directory (a path or a file: URL) or a postgres: URL, got a ${text.split(":")[0]}: URL`,
    );
  }
  return path.resolve(text);
}
