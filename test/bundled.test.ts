import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { Script } from "./support/script.ts";
import { tempDirectory } from "./support/temp.ts";

/** What a bundler makes of the package, as far as it matters here. */
const BUNDLES: { readonly [what: string]: (dist: string) => void } = {
  "without the file of the thread": (dist) => fs.rmSync(path.join(dist, "storage/sqlite/thread.js")),
  "as CommonJS, where a module does not know its URL": (dist) => {
    for (const name of ["engine-thread.js", "side-thread.js"]) {
      const file = path.join(dist, "storage/sqlite", name);
      fs.writeFileSync(file, fs.readFileSync(file, "utf8").replace("import.meta.url", "undefined"));
    }
  },
};

test.each(Object.entries(BUNDLES))("a package that was bundled %s says so", async (_, bundle) => {
  const dist = path.join(tempDirectory(), "dist");
  fs.cpSync("dist", dist, { recursive: true });
  bundle(dist);
  const program = `
    const storage = open();
    print(await storage.put([entry("a")], {}).catch(({ code, message, outcome }) => ({ code, message, outcome })));
    await storage.close();`;
  const script = new Script(tempDirectory(), program, { dist: pathToFileURL(`${dist}/`) });
  expect(await script.ended()).toMatchObject({ code: 0, signal: null });
  expect(script.printed).toEqual([
    { code: "BAD_LOCATION", message: expect.stringContaining("Keep localqueue external"), outcome: "failed" },
  ]);
});
