// Makes the compiled modules in dist/ small: npm run build:js
// Names that stack traces show stay: those of functions, classes and methods, and whatever is at a module's top.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { minify } from "terser";

const OPTIONS = {
  ecma: 2020,
  parse: { module: true },
  // A function that moved into the one that calls it would be made anew with each call.
  compress: { inline: false, reduce_funcs: false, sequences: false },
  mangle: { module: false, toplevel: false },
  keep_classnames: true,
  keep_fnames: true,
  format: { comments: false, max_line_len: 120 },
};

const PRIVATE_METHOD = /^\s*(?:static )?(?:async )?\*?\s?(?:[gs]et )?#(\w+)\(/gm;
/** Stands for the `#` of a private method meanwhile, since terser leaves only public names alone. */
const MARK = "$private$";

for (const file of readdirSync("dist", { recursive: true, encoding: "utf8" })) {
  if (!file.endsWith(".js")) continue;
  const name = path.join("dist", file);
  writeFileSync(name, await minified(name, readFileSync(name, "utf8")));
}

async function minified(name, text) {
  if (text.includes(MARK)) throw new Error(`${name} contains ${MARK}`);
  let marked = text;
  for (const method of new Set(Array.from(text.matchAll(PRIVATE_METHOD), ([, name]) => name))) {
    marked = marked.replace(new RegExp(`#${method}\\b`, "g"), () => MARK + method);
  }
  const { code } = await minify({ [name]: marked }, OPTIONS);
  return `${code.replaceAll(MARK, "#")}\n`;
}
