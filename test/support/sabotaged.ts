import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { tempDirectory } from "./temp.ts";

/**
 * A copy of the built package, and of the test programs, to whose engine some code was added: it sees what the module
 * `engine.ts` sees. The URL is that of the copy's root.
 */
export function sabotagedEngine(code: string): URL {
  const directory = tempDirectory();
  for (const part of ["dist/", "test/"]) {
    fs.cpSync(new URL(`../../${part}`, import.meta.url), path.join(directory, part), { recursive: true });
  }
  fs.symlinkSync(new URL("../../node_modules", import.meta.url), path.join(directory, "node_modules"));
  fs.writeFileSync(path.join(directory, "package.json"), '{ "type": "module" }');
  fs.appendFileSync(path.join(directory, "dist/storage/sqlite/engine.js"), code);
  return pathToFileURL(`${directory}/`);
}
