import { StorageError } from "../../errors.ts";
import type { ErrorOnWire } from "./protocol.ts";

/** For those whose answer died with the engine's thread. */
export function engineDied(directory: string, sent: boolean, cause: unknown): StorageError {
  if (cause instanceof StorageError) return cause;
  const message = `The storage thread of ${directory} ended unexpectedly; the next operation starts a new one.`;
  return new StorageError("IO", message, { outcome: sent ? "unknown" : "failed", cause });
}

/** An error of the engine, on this side. */
export function revive({ code, message, outcome, cause }: ErrorOnWire): StorageError {
  if (cause === undefined) return new StorageError(code, message, { outcome });
  return new StorageError(code, message, {
    outcome,
    cause: Object.assign(new Error(cause.message), { name: cause.name }),
  });
}

/** Whoever waited for the lock as long as it could. */
export function lockedOut(file: string): StorageError {
  return new StorageError(
    "BUSY",
    `${file} is locked by another process or connection. Try again, or allow more time with \`timeoutMs\`.`,
  );
}
