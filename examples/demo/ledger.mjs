import { appendFile, readFile } from "node:fs/promises";

/** Adds a line to the file of one worker, and resolves when the disk has it. */
export async function record(file, entry) {
  await appendFile(file, `${JSON.stringify(entry)}\n`, { flag: "as" });
}

/** What a worker wrote down; nothing, if it never got a job. */
export async function readLedger(file) {
  try {
    const text = await readFile(file, "utf8");
    return text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line));
  } catch (error) {
    if (error.code === "ENOENT") return [];
    throw error;
  }
}
