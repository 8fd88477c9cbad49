import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { SimpleQueue, Worker } from "localqueue";
import { BusTopology, defineEvent, EventBus } from "localqueue/bus";
import { describe, expect, test } from "vitest";
import { FAILURE_REASONS } from "../dist/state.js";
import { openDatabase } from "./support/database.ts";
import { blocksOf, type DocBlock, PAGES } from "./support/doc-blocks.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

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

const blocks = PAGES.flatMap(blocksOf);
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
  for (const name of ["zod", "valibot", "arktype"]) {
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

describe("the code in the documentation runs", () => {
  for (const block of programs) {
    const { how } = block;
    const earlier = programs.slice(0, programs.indexOf(block)).filter(({ how: { group } }) => group === how.group);
    test(block.where, async () => {
      const directory = project();
      for (const before of how.group === undefined ? [] : earlier) await run(before, directory);
      await run(block, directory);
      if (how.same !== undefined) expect(block.text).toBe(readFileSync(how.same, "utf8"));
    });
  }

  test("and there is no other kind of code in it", () => {
    const languages = new Set(blocks.map(({ language }) => language));
    expect(
      [...languages].filter((language) => !["js", "ts", "sh", "python", "text", "mermaid"].includes(language)),
    ).toEqual([]);
  });
});

describe("what the documentation names exists", () => {
  const { scripts, peerDependencies } = JSON.parse(readFileSync("package.json", "utf8"));

  for (const page of PAGES) {
    const text = readFileSync(page, "utf8");

    test(`${page}: commands`, () => {
      const named = Array.from(text.matchAll(/\bnpm run ([\w:]+)/g), ([, script]) => script);
      expect(named.filter((script) => scripts[script as string] === undefined)).toEqual([]);
      const files = Array.from(text.matchAll(/\bnode ((?:[\w-]+\/)+[\w-]+\.m?js)/g), ([, file]) => file as string);
      expect(files.filter((file) => !existsSync(file))).toEqual([]);
      for (const [, range] of text.matchAll(/better-sqlite3@([^`\s]+)/g))
        expect(range).toBe(peerDependencies["better-sqlite3"]);
    });

    test(`${page}: links`, () => {
      const links = Array.from(text.matchAll(/\]\(([^)\s]+)\)/g), ([, link]) => link as string);
      const broken = links.filter((link) => !/^https?:/.test(link) && !leadsSomewhere(page, link));
      expect(broken).toEqual([]);
    });
  }
});

function leadsSomewhere(page: string, link: string): boolean {
  const [file = "", anchor] = link.split("#");
  const target = file === "" ? page : path.join(path.dirname(page), file);
  if (!existsSync(target)) return false;
  return anchor === undefined || anchorsOf(readFileSync(target, "utf8")).includes(anchor);
}

function anchorsOf(text: string): string[] {
  const headings = Array.from(text.matchAll(/^#+ (.+)$/gm), ([, heading]) => heading as string);
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, "")
      .replaceAll(" ", "-"),
  );
}

describe("the documentation is complete", () => {
  test("the life of a job is that of the state table", () => {
    execFileSync(process.execPath, ["scripts/lifecycle.mjs", "--check"]);
  });

  test("every option is in the tables, and nothing else", async () => {
    const queue = await knownOptions(() => new SimpleQueue("unused", { "?": 1 } as object));
    const worker = await knownOptions(() => new Worker(new SimpleQueue("unused"), () => {}, { "?": 1 } as object));
    expect(optionRows("docs/queue.md")).toEqual(queue);
    expect(optionRows("docs/worker.md")).toEqual(worker);
    expect(optionRows("README.md")).toEqual([...queue, ...worker].sort());
  });

  test("every option of the event bus is in the tables, and nothing else", async () => {
    const unknown = { "of no option": 1 } as object;
    const topology = new BusTopology({ audit: ["*"] });
    const bus = new EventBus("unused", { topology });
    expect(optionRows("docs/bus.md")).toEqual(
      await knownOptions(() => new EventBus("unused", { topology, ...unknown })),
    );
    for (const [of, use] of Object.entries({
      "`defineEvent`": () => defineEvent("a", undefined, unknown),
      "an event": () => defineEvent("a")({}, unknown),
      "`run`": () => bus.run(unknown),
    })) {
      expect(optionRowsOf("docs/bus.md", of)).toEqual(await knownOptions(use));
    }
    const text = readFileSync("docs/bus.md", "utf8");
    const worker = await knownOptions(() => new Worker(new SimpleQueue("unused"), () => {}, unknown));
    expect(worker.filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
  });

  test("every reason why an event became a dead letter is explained", () => {
    const text = readFileSync("docs/bus.md", "utf8");
    const elsewhere = ["explicit_permanent_failure", "undecodable_payload", "legacy_unknown"];
    const reasons = FAILURE_REASONS.filter((reason) => !elsewhere.includes(reason));
    expect(reasons.filter((reason) => !text.includes(`| \`${reason}\` |`))).toEqual([]);
  });

  test("every option of the command line is in the tables, and nothing else", () => {
    const section = (title: string): string =>
      readFileSync("docs/cli.md", "utf8").split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? "";
    for (const [command, title] of [
      ["put", "Put"],
      ["work", "Work"],
      ["stats", "Stats"],
      ["failed list", "Failed list"],
      ["failed show", "Failed show"],
      ["failed retry", "Failed retry"],
      ["failed purge", "Failed purge"],
      ["purge", "Purge"],
      ["vacuum", "Vacuum"],
      ["check", "Check"],
      ["backup", "Backup"],
      ["diagnostics", "Diagnostics"],
      ["bus stats", "Bus stats"],
      ["bus failed list", "Bus failed list"],
      ["bus failed show", "Bus failed show"],
      ["bus failed retry", "Bus failed retry"],
      ["bus failed purge", "Bus failed purge"],
      ["bus purge", "Bus purge"],
    ] as const) {
      const help = execFileSync(process.execPath, ["dist/cli/main.js", ...command.split(" "), "--help"], {
        encoding: "utf8",
      });
      const known = Array.from(help.matchAll(/^ {2}(--[\w-]+(?: [A-Z]+)?) {2}/gm), ([, option]) => option);
      const rows = Array.from(section(title).matchAll(/^\| `(--[^`]+)` \|/gm), ([, option]) => option);
      expect([...rows, "--help"]).toEqual(known);
    }
    const variables = readFileSync("src/cli/job-command.ts", "utf8").match(/LOCALQUEUE_[A-Z_]+/g);
    expect(section("Work").match(/(?<=^\| `)LOCALQUEUE_[A-Z_]+(?=` \|)/gm)).toEqual(variables);
  });

  test("every field of the diagnostics and every reason of a dead letter is explained", async () => {
    const text = readFileSync("docs/operations.md", "utf8");
    const report = await openQueue().diagnostics();
    const names = [...Object.keys(report), ...FAILURE_REASONS];
    expect(names.filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
  });

  test("every code of an error or a warning is explained", () => {
    const text = readFileSync("docs/errors.md", "utf8");
    const errors = readFileSync("dist/errors.d.ts", "utf8").match(/(?<=\| ")[A-Z_]+(?=")/g) ?? [];
    const warnings = sourceFiles().flatMap(
      (file) => readFileSync(file, "utf8").match(/(?<=")LOCALQUEUE_[A-Z_]+(?=")/g) ?? [],
    );
    expect([errors.length > 15, warnings.length > 3]).toEqual([true, true]);
    expect([...errors, ...warnings].filter((code) => !text.includes(`\`${code}\``))).toEqual([]);
  });

  test("the page on platforms names the versions that are tested", () => {
    const text = readFileSync("docs/platforms.md", "utf8");
    const versions = Array.from(
      readFileSync("scripts/runtimes/runtimes.mjs", "utf8").matchAll(/version: "([\d.]+)"/g),
      ([, version]) => version as string,
    );
    expect(versions.length).toBeGreaterThan(4);
    expect(versions.filter((version) => !text.includes(` ${version} |`))).toEqual([]);
  });

  test("every column of a job, and every object that is added to the file, is explained", async () => {
    const directory = tempDirectory();
    await openQueue({ location: directory }).put("a job");
    const database = openDatabase(directory);
    const columns = database.prepare("SELECT name FROM pragma_table_info('messages')").all();
    const objects = database.prepare("SELECT name FROM sqlite_schema WHERE name LIKE 'localqueue%'").all();
    database.close();
    const text = readFileSync("docs/storage.md", "utf8");
    const unexplained = [...columns, ...objects].filter(({ name }) => !text.includes(`\`${name}\``));
    expect(unexplained).toEqual([]);
  });

  test("ARCHITECTURE.md has a line for each source file", () => {
    const text = readFileSync("ARCHITECTURE.md", "utf8");
    const named = Array.from(text.matchAll(/`(src\/[\w/-]+\.ts)`/g), ([, file]) => file as string);
    expect([...new Set(named)].sort()).toEqual(sourceFiles());
  });
});

/** What the refusal of an unknown option lists. */
async function knownOptions(use: () => unknown): Promise<string[]> {
  let message = "";
  try {
    await use();
  } catch (error) {
    message = (error as Error).message;
  }
  return Array.from(message.split("known:")[1]?.matchAll(/`(\w+)`/g) ?? [], ([, name]) => name as string).sort();
}

function optionRows(page: string): string[] {
  return namesIn(readFileSync(page, "utf8").split("\n## Options\n")[1]?.split("\n## ")[0] ?? "");
}

/** The rows of the table that begins with "option of …". */
function optionRowsOf(page: string, of: string): string[] {
  return namesIn(readFileSync(page, "utf8").split(`\n| option of ${of} |`)[1]?.split("\n\n")[0] ?? "");
}

function namesIn(table: string): string[] {
  return Array.from(table.matchAll(/^\| `(\w+)` \|/gm), ([, name]) => name as string).sort();
}

function sourceFiles(): string[] {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" });
  return files
    .filter((file) => file.endsWith(".ts"))
    .map((file) => `src/${file}`)
    .sort();
}
