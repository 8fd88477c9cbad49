import { fileURLToPath } from "node:url";
import { callSafely } from "./emitter.ts";
import {
  type Check,
  type Full,
  functionOf,
  integer,
  type OptionsReader,
  oneOf,
  option,
  optional,
  optionsReader,
  outOfRange,
  wrongType,
} from "./options.ts";
import type { BackupProgress, IntegrityMode, IntegrityProgress } from "./storage/care.ts";

/** How a file is checked. */
export interface IntegrityOptions {
  /** "quick" leaves out whether each index agrees with its table. Default "full". */
  readonly mode?: IntegrityMode | undefined;
  /** How many messages at most, from 1 to 1000. Default 100. */
  readonly maxErrors?: number | undefined;
  /** Is told which part is next. */
  readonly onProgress?: ((progress: IntegrityProgress) => void) | undefined;
}

/** How a backup is made. */
export interface BackupOptions {
  /** Is told how far the backup is, at most 20 times a second. */
  readonly onProgress?: ((progress: BackupProgress) => void) | undefined;
}

/** A listener whose failure does not end what it listens to. */
function listener<Progress>(): Check<(progress: Progress) => void> {
  const check = functionOf<(progress: Progress) => void>();
  return (value, name) => {
    const listener = check(value, name);
    return (progress) => void callSafely(name, listener, progress);
  };
}

export const readIntegrityOptions: OptionsReader<Full<IntegrityOptions, "mode" | "maxErrors">> = optionsReader({
  mode: option<IntegrityMode>(oneOf(["full", "quick"]), "full"),
  maxErrors: option(integer(1, 1000), 100),
  onProgress: optional(listener<IntegrityProgress>()),
});

export const readBackupOptions: OptionsReader<Full<BackupOptions>> = optionsReader({
  onProgress: optional(listener<BackupProgress>()),
});

/** The path of a directory that is given as a path or as a `file:` URL. */
export function readDirectory(directory: unknown): string {
  const expected = "a directory (a path or a file: URL)";
  const text = directory instanceof URL ? directory.href : directory;
  if (typeof text !== "string") throw wrongType("directory", expected, directory);
  if (/^file:/i.test(text)) return fileURLToPath(text);
  if (text === "" || text.includes("\0") || directory instanceof URL) throw outOfRange("directory", expected, text);
  return text;
}
