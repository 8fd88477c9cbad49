import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { onTestFinished } from "vitest";

/** A directory of the test's own; it is kept if the test fails, and its name is printed. */
export function tempDirectory(): string {
  const directory = mkdtempSync(path.join(tmpdir(), "localqueue-"));
  onTestFinished(({ task }) => {
    if (task.result?.state === "fail") process.stderr.write(`${task.name}: see ${directory}\n`);
    else rmSync(directory, { recursive: true, force: true });
  });
  return directory;
}
