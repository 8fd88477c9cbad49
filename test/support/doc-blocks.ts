import { readdirSync, readFileSync } from "node:fs";

/** A fenced block in a page of the documentation. */
export interface DocBlock {
  /** "docs/queue.md:12", where its text begins. */
  readonly where: string;
  readonly language: string;
  readonly text: string;
  /** What the comment before it says, which readers do not see: `<!-- test: key=value key="two words" -->`. */
  readonly how: DocDirectives;
}

type DocDirectives = Readonly<
  Partial<Record<"with" | "group" | "file" | "output" | "beside" | "stop" | "same" | "server", string>>
>;

const KEYS: readonly string[] = ["with", "group", "file", "output", "beside", "stop", "same", "server"];

export const PAGES: readonly string[] = [".", "docs"].flatMap((directory) =>
  readdirSync(directory)
    .filter((name) => name.endsWith(".md"))
    .sort()
    .map((name) => (directory === "." ? name : `${directory}/${name}`)),
);

export function blocksOf(page: string): DocBlock[] {
  const lines = readFileSync(page, "utf8").split("\n");
  const blocks: DocBlock[] = [];
  for (let i = 0; i < lines.length; i++) {
    const language = /^```(\w+)$/.exec(lines[i] ?? "")?.[1];
    if (language === undefined) continue;
    const end = lines.indexOf("```", i);
    if (end < 0) throw new Error(`${page}:${i + 1}: this block has no end`);
    const where = `${page}:${i + 2}`;
    blocks.push({
      where,
      language,
      text: `${lines.slice(i + 1, end).join("\n")}\n`,
      how: readDirectives(lines[i - 1] ?? "", where),
    });
    i = end;
  }
  return blocks;
}

function readDirectives(line: string, where: string): DocDirectives {
  const comment = /^<!-- test: (.+) -->$/.exec(line)?.[1] ?? "";
  const how: Record<string, string> = {};
  for (const [, key = "", quoted, plain = ""] of comment.matchAll(/(\w+)=(?:"([^"]*)"|(\S+))/g)) {
    if (!KEYS.includes(key)) throw new Error(`${where}: unknown directive "${key}"`);
    how[key] = quoted ?? plain;
  }
  return how;
}
