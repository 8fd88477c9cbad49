/** What is worth a warning but no error. Programs may look for the code on `process.on("warning")`. */
export type WarningCode =
  | "LOCALQUEUE_CONTEXT_IGNORED"
  | "LOCALQUEUE_FILESYSTEM"
  | "LOCALQUEUE_LISTENER_FAILED"
  | "LOCALQUEUE_LOCKS_LOST"
  | "LOCALQUEUE_UNHEARD_DEAD_LETTER"
  | "LOCALQUEUE_UNSAFE_SQLITE";

export function warn(code: WarningCode, message: string, detail?: string): void {
  process.emitWarning(message, { type: "LocalQueueWarning", code, ...(detail !== undefined && { detail }) });
}

const warned = new Set<string>();

/** Warns of the same thing once per process. */
export function warnOnce(code: WarningCode, message: string): void {
  if (warned.has(message)) return;
  warned.add(message);
  warn(code, message);
}
