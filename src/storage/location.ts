import path from "node:path";
import { fileURLToPath } from "node:url";
import { openSqliteStorage } from "./sqlite/sqlite-storage.ts";
import type { Storage, StorageSettings } from "./storage.ts";

/** The storage that a location stands for. Does no I/O: the first operation opens. */
export function openStorage(location: string | URL, settings: StorageSettings): Storage {
  return openSqliteStorage(directoryOf(location), settings);
}

function directoryOf(location: unknown): string {
  const text = location instanceof URL ? location.href : location;
  if (typeof text !== "string" || text === "" || text.includes("\0")) {
    const got = typeof text === "string" ? JSON.stringify(text) : typeof text;
    throw new TypeError(`Expected \`location\` to be a directory (a path or a file: URL), got ${got}`);
  }
  if (/^postgres(ql)?:/i.test(text)) {
    throw new TypeError("This version of localqueue has no PostgreSQL storage: expected `location` to be a directory");
  }
  if (/^file:/i.test(text)) return path.resolve(fileURLToPath(text));
  if (location instanceof URL || /^[a-z][a-z0-9+.-]+:\/\//i.test(text)) {
    throw new TypeError(
      `Expected \`location\` to be a directory (a path or a file: URL), got a ${text.split(":")[0]}: URL`,
    );
  }
  return path.resolve(text);
}
