import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const versions = new URL("../../../test/interop/python/versions.json", import.meta.url);
const { current } = JSON.parse(fs.readFileSync(versions, "utf8"));
const python = fileURLToPath(new URL(`../../../.interop/${current}/bin/python`, import.meta.url));

/** Runs a program of `programs/` with the Python package and gives what it says, lines of JSON, one after the other. */
export async function* runPython(name, ...args) {
  if (!fs.existsSync(python)) throw new Error("This needs the Python package: `npm run test:interop` installs it.");
  const file = fileURLToPath(new URL(`../programs/${name}.py`, import.meta.url));
  const child = spawn(python, [file, ...args.map(String)], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close");
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line);
  const [code, signal] = await ended;
  if (code !== 0) throw new Error(`The program ${name} failed (${signal ?? `exit code ${code}`}).`);
}
