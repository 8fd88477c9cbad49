import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { blocksOf, type DocBlock } from "../support/doc-blocks.ts";
import { tempDirectory } from "../support/temp.ts";
import { CURRENT, interpreterOf } from "./support/python.ts";

/** The extension and the interpreter of a language. */
const LANGUAGES: Readonly<Record<string, readonly [extension: string, interpreter: string]>> = {
  js: ["mjs", process.execPath],
  python: ["py", interpreterOf(CURRENT)],
};

const blocks = blocksOf("docs/python.md").filter(({ language }) => language in LANGUAGES);
const groups = new Set(
  blocks.filter(({ language }) => language === "python").map(({ how, where }) => how.group ?? where),
);

for (const group of groups) {
  test(`the programs of docs/python.md do what they say, one after the other (${group})`, () => {
    const directory = tempDirectory();
    mkdirSync(path.join(directory, "node_modules"));
    symlinkSync(path.resolve("."), path.join(directory, "node_modules", "localqueue"));
    for (const block of blocks) if ((block.how.group ?? block.where) === group) run(block, directory);
  });
}

test("docs/python.md shows programs of both languages", () => {
  expect(groups.size).toBeGreaterThan(0);
});

function run({ where, language, text, how }: DocBlock, directory: string): void {
  const [extension, interpreter] = LANGUAGES[language] as readonly [string, string];
  const file = path.join(directory, `${where.replace(/\W/g, "-")}.${extension}`);
  writeFileSync(file, text);
  const printed = execFileSync(interpreter, [file], { cwd: directory, encoding: "utf8", timeout: 20_000 });
  expect(printed.trim(), where).toContain(how.beside ?? how.output ?? "");
}
