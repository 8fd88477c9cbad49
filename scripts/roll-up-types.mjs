// Makes the types of the package's entries from those of its modules: npm run build:types
// All declarations go into one file, so that a class is one type whichever entry it is imported from. An entry's own
// file only names what it exports.
import { readFileSync, writeFileSync } from "node:fs";
import { Extractor, ExtractorConfig } from "@microsoft/api-extractor";

const ENTRIES = { index: "index", bus: "bus/index", postgres: "postgres" };

const all = Object.values(ENTRIES).map((module) => `export * from "./${module}.js";\n`);
writeFileSync("dist/all.d.ts", all.join(""));
const { succeeded } = Extractor.invoke(ExtractorConfig.loadFileAndPrepare("api-extractor.rollup.json"));
if (!succeeded) process.exitCode = 1;

// API Extractor takes care not to hide the DOM's `Event`, which nothing here refers to, behind our own.
const rolledUp = readFileSync("dist/types/all.d.ts", "utf8");
writeFileSync("dist/types/all.d.ts", rolledUp.replaceAll("Event_2", "Event").replace("Event as Event", "Event"));

for (const [entry, module] of Object.entries(ENTRIES)) {
  const exported = readFileSync(`dist/${module}.d.ts`, "utf8");
  writeFileSync(
    `dist/types/${entry}.d.ts`,
    exported.replace(/from "[^"]+"/g, () => `from "./all.js"`),
  );
}
