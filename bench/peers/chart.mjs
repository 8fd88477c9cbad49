// Writes what came out of the runs into the docs, and the picture: node bench/peers/chart.mjs
import fs from "node:fs";
import { picture } from "./support/picture.mjs";
import { tablesOf } from "./support/tables.mjs";

/** The page of each field. */
const PAGES = { machine: "performance.md", postgres: "scaling.md" };
const docs = new URL("../../docs/", import.meta.url);

for (const [field, name] of Object.entries(PAGES)) {
  const file = new URL(`${field}.json`, import.meta.url);
  const results = JSON.parse(fs.readFileSync(file, "utf8"));
  const page = new URL(name, docs);
  let text = fs.readFileSync(page, "utf8");
  for (const [place, table] of Object.entries(tablesOf(field, results))) {
    const [begin, end] = [`<!-- results: ${place} -->\n`, "\n<!-- end of results -->"];
    const from = text.indexOf(begin);
    if (from < 0) throw new Error(`docs/${name} has no place for the results of ${place}.`);
    const to = text.indexOf(end, from);
    text = `${text.slice(0, from + begin.length)}\n${table}\n${text.slice(to)}`;
  }
  fs.writeFileSync(page, text);
  if (field === "machine") fs.writeFileSync(new URL("performance.svg", docs), picture(results));
}
