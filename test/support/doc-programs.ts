import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { blocksOf, type DocBlock, PAGES } from "./doc-blocks.ts";
import { tempDirectory } from "./temp.ts";
import { until } from "./until.ts";

/*
 * Every block of code in the documentation runs, in a directory of its own, as a process that must end with exit code
 * 0; so does every block for the shell that calls `npx localqueue`. Blocks of Python run in test/interop. A comment before the block, which readers do not see, may say more (`<!-- test: key=value … -->`):
 *
 *   with=NAME      it is a part of a program: it stands in the frame of that name, see below
 *   group=NAME     it runs in the same directory after the earlier blocks of this name
 *   file=NAME      it is a file of this name, which others of its group may import
 *   output="TEXT"  it must print this
 *   beside="TEXT"  it must print this after the programs of Python in its group, which run in test/interop
 *   stop=SIGNAL    it would run for ever: it gets this signal as soon as it has printed its output
 *   same=PATH      it is also a file of the repository, which must be the same
 *   server=NAME    it needs a server, and runs where the tests have one: what it calls db.example.com is that
 */

const IMPORTS = `import {
  EmptyError, EnqueueItem, LeaseExpiredError, Reject, Retry, RetryPolicy, SimpleQueue, StorageError, Worker,
} from "localqueue";\n`;
const OPEN = `${IMPORTS}const queue = new SimpleQueue("./data");\n`;

/** What stands before and after a block. */
const FRAMES: { readonly [name: string]: readonly [before: string, after: string] } = {
  imports: [IMPORTS, "await queue.close();\n"],
  queue: [OPEN, "await queue.close();\n"],
  bus: [
    `cat > bus.mjs <<'END'
import { BusTopology, EventBus, defineEvent } from "localqueue/bus";
const UserCreated = defineEvent("user.created");
const topology = new BusTopology({ email: [UserCreated], audit: ["*"] });
const bus = new EventBus("./data", { name: "app", topology, maxRetries: 0 });
await bus.dispatch(UserCreated({ userId: "123" }));
bus.on("event:failed", () => {});
bus.subscription("email").handler(UserCreated, () => { throw new Error("timed out"); });
await bus.run({ idleTimeoutMs: 1 });
await bus.close();
END
node bus.mjs\n`,
    "",
  ],
  jobs: [
    `${OPEN}for (const to of ["a@example.com", "b@example.com", "c@example.com"]) await queue.put({ to });\n`,
    "await queue.close();\n",
  ],
  "send-email": [`echo 'process.stdin.pipe(process.stdout);' > send-email.mjs\n`, ""],
  app: [
    `import { Reject, RetryPolicy } from "localqueue";
    import { BusTopology, defineEvent, EventBus } from "localqueue/bus";
    const UserCreated = defineEvent("user.created");
    const topology = new BusTopology({ email: [UserCreated], audit: ["*"] });
    const bus = new EventBus("./data", { name: "app", topology });\n`,
    "await bus.close();\n",
  ],
  subscriptions: [
    `import { BusTopology, defineEvent, EventBus, listSubscriptions } from "localqueue/bus";
    const UserCreated = defineEvent("user.created");
    const bus = new EventBus("./data", { name: "app", topology: new BusTopology({ email: [UserCreated] }) });
    await bus.dispatch(UserCreated({ userId: "123" }));\n`,
    "await bus.close();\n",
  ],
  worker: [
    `${OPEN}import { createServer } from "node:http";
    const server = createServer((_, response) => response.end("hello")).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    await queue.put({ url: "http://127.0.0.1:" + server.address().port });\n`,
    `if (!(await worker.runOnce())) throw new Error("The worker had nothing to do");
    if ((await queue.stats()).acked !== 1) throw new Error("The worker did not finish the job");
    await queue.close();
    server.closeAllConnections();
    server.close();\n`,
  ],
};

export const blocks: readonly DocBlock[] = PAGES.flatMap(blocksOf);
const programs = blocks.filter(
  ({ language, text }) => ["js", "ts"].includes(language) || (language === "sh" && text.includes("npx localqueue")),
);

function programOf({ text, how, where }: DocBlock): string {
  if (how.with === undefined) return text;
  const frame = FRAMES[how.with];
  if (frame === undefined) throw new Error(`${where}: there is no frame "${how.with}"`);
  return frame.join(text);
}

/** A directory from which "localqueue" can be imported, and called. */
function project(): string {
  const directory = tempDirectory();
  const bin = path.join(directory, "node_modules", ".bin");
  mkdirSync(bin, { recursive: true });
  const command = `#!/bin/sh\nexec '${process.execPath}' '${path.resolve("dist/cli/main.js")}' "$@"\n`;
  writeFileSync(path.join(bin, "localqueue"), command, { mode: 0o755 });
  symlinkSync(path.resolve("."), path.join(directory, "node_modules", "localqueue"));
  symlinkSync(path.resolve("test/support/opentelemetry"), path.join(directory, "node_modules", "@opentelemetry"));
  for (const name of ["zod", "valibot", "arktype", "pg"]) {
    symlinkSync(path.resolve("node_modules", name), path.join(directory, "node_modules", name));
  }
  writeFileSync(path.join(directory, "package.json"), `{ "type": "module" }`);
  return directory;
}

/** Writes the program, compiled if need be; returns its file. */
function write(block: DocBlock, directory: string): string {
  const name = `program-${block.where.replace(/\W/g, "-")}`;
  const file = path.join(directory, block.how.file ?? `${name}.${block.language}`);
  writeFileSync(file, programOf(block));
  if (block.language !== "ts") return file;
  const options = ["--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2023"];
  const types = [
    "--lib",
    "es2023,esnext.disposable",
    "--types",
    "node",
    "--typeRoots",
    path.resolve("node_modules/@types"),
  ];
  const tsc = spawnSync(path.resolve("node_modules/.bin/tsc"), [...options, ...types, file], {
    cwd: directory,
    encoding: "utf8",
  });
  expect(tsc.stdout).toBe("");
  return path.join(directory, `${name}.js`);
}

async function run(block: DocBlock, directory: string): Promise<void> {
  const { output = "", stop } = block.how;
  const [program, ...flags] = block.language === "sh" ? ["sh", "-e"] : [process.execPath];
  const args = [...flags, write(block, directory)];
  const child = spawn(program as string, args, { cwd: directory, timeout: 20_000, killSignal: 9 });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
    });
  }
  const closed = once(child, "close");
  if (stop !== undefined) {
    await until(() => printed.includes(output) || child.exitCode !== null);
    child.kill(stop as NodeJS.Signals);
  }
  const [code, signal] = await closed;
  expect({ code, signal, printed }).toEqual({ code: 0, signal: null, printed: expect.stringContaining(output) });
}

/** A test for each program that needs this server, or none. `written` is what is run for what is written. */
export function testPrograms(server: string | undefined, written: (text: string) => string = (text) => text): void {
  const chosen = programs
    .filter(({ how }) => how.server === server)
    .map((block) => ({ ...block, text: written(block.text) }));
  for (const [index, block] of chosen.entries()) {
    const { group, same } = block.how;
    const earlier = chosen.slice(0, index).filter(({ how }) => group !== undefined && how.group === group);
    test(block.where, async () => {
      const directory = project();
      for (const before of earlier) await run(before, directory);
      await run(block, directory);
      if (same !== undefined) expect(block.text).toBe(readFileSync(same, "utf8"));
    });
  }
}
