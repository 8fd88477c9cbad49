import { spawn } from "node:child_process";

/**
 * Runs an ES module in a process of its own and resolves to what it printed as JSON. Imports of the built package are
 * written `dist/...`.
 */
export async function runModule(code: string): Promise<unknown> {
  const dist = new URL("../../dist/", import.meta.url).href;
  const module = code.replaceAll(/from "dist\//g, `from "${dist}`);
  // The working directory decides where the module finds packages.
  const cwd = new URL("../..", import.meta.url);
  const child = spawn(process.execPath, ["--input-type=module", "--eval", module], { cwd });
  let output = "";
  let errors = "";
  child.stdout.on("data", (data) => {
    output += data;
  });
  child.stderr.on("data", (data) => {
    errors += data;
  });
  const status = await new Promise((resolve) => child.once("close", resolve));
  if (status !== 0) throw new Error(`The module ended with status ${status}: ${errors}`);
  return JSON.parse(output);
}
