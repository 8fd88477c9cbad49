import { accessSync, constants, statSync } from "node:fs";
import path from "node:path";

/** Whether a program of this name, or path, could be started: found before any job is claimed for it. */
export function canBeStarted(program: string): boolean {
  if (program.includes("/")) return isExecutable(program);
  const directories = (process.env["PATH"] ?? "/usr/bin:/bin").split(path.delimiter);
  return directories.some((directory) => isExecutable(path.join(directory, program)));
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
