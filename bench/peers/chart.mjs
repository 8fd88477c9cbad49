// Writes the tables and the picture of docs/performance.md from results.json: node bench/peers/chart.mjs [FILE]
import fs from "node:fs";
import { picture } from "./support/picture.mjs";
import { tables } from "./support/tables.mjs";

const docs = new URL("../../docs/", import.meta.url);
const file = process.argv[2] ?? new URL("results.json", import.meta.url);
const results = JSON.parse(fs.readFileSync(file, "utf8"));

const page = new URL("performance.md", docs);
let text = fs.readFileSync(page, "utf8");
for (const [name, table] of Object.entries(tables(results))) {
  const [begin, end] = [`<!-- results: ${name} -->\n`, "\n<!-- end of results -->"];
  const from = text.indexOf(begin);
  if (from < 0) throw new Error(`docs/performance.md has no place for the results of ${name}.`);
  const to = text.indexOf(end, from);
  text = `${text.slice(0, from + begin.length)}\n${table}\n${text.slice(to)}`;
}
fs.writeFileSync(page, text);
fs.writeFileSync(new URL("performance.svg", docs), picture(results));
