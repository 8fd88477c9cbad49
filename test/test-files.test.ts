import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { CAPABILITIES } from "./support/capabilities.ts";
import { ON_BOTH, ON_SQLITE, POSTGRES } from "./support/test-files.ts";

const SUFFIX = ".test.ts";
const names = readdirSync("test")
  .filter((file) => file.endsWith(SUFFIX))
  .map((file) => file.slice(0, -SUFFIX.length));

test("each test file runs on both storages, or there is a reason why it does not", () => {
  const listed = [...ON_BOTH, ...Object.values(ON_SQLITE).flat()];
  expect([...listed].sort()).toEqual(names.filter((name) => !name.startsWith(POSTGRES)).sort());
});

test("each capability is one that a test asks for", () => {
  const contract = readdirSync("test/contract").map((file) => `test/contract/${file}`);
  const files = [...contract, ...names.map((name) => `test/${name}${SUFFIX}`)];
  const texts = files.map((file) => readFileSync(file, "utf8")).join("\n");
  const asked = Object.keys(CAPABILITIES).filter((capability) => texts.includes(`lacks("${capability}")`));
  expect(asked).toEqual(Object.keys(CAPABILITIES));
});
