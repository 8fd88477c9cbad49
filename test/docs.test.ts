import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { SimpleQueue, Worker } from "localqueue";
import { BusTopology, defineEvent, EventBus } from "localqueue/bus";
import { describe, expect, test } from "vitest";
import { FAILURE_REASONS } from "../dist/state.js";
import { openDatabase } from "./support/database.ts";
import { PAGES } from "./support/doc-blocks.ts";
import { blocks, testPrograms } from "./support/doc-programs.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";

describe("the code in the documentation runs", () => {
  testPrograms(undefined);

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
      ["migrate", "Migrate"],
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
