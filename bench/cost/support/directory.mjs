import fs from "node:fs";
import os from "node:os";
import path from "node:path";

/** Lends a new directory to `work`. cost.mjs names the place, and clears it even after a crash. */
export async function withDirectory(work) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-cost-"));
  try {
    return await work(directory);
  } finally {
    // After a failure, another process may still be closing its files.
    fs.rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}
