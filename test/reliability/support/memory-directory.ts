import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/** In memory, where there is such a file system: for what is not about disks, and is repeated thousands of times. */
const MEMORY = "/dev/shm";

/** A new directory, which the caller removes. */
export function memoryDirectory(): string {
  return mkdtempSync(path.join(existsSync(MEMORY) ? MEMORY : tmpdir(), "localqueue-"));
}
