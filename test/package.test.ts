import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { InstalledPackage } from "./support/installed.ts";

const manifest = JSON.parse(readFileSync("package.json", "utf8"));
let installed: InstalledPackage;

beforeAll(() => {
  installed = new InstalledPackage();
});
afterAll(() => installed.remove());

describe("the package holds what its users need, and nothing else", () => {
  test("every module, the types of each entry and what they share, and four pages", () => {
    const files = installed.packed.files.map((file) => file.path).sort();
    const types = files.filter((file) => file.endsWith(".d.ts"));
    const sources = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
    const modules = sources.map((file) => `dist/${file.replace(/\.ts$/, ".js")}`);
    const others = files.filter((file) => !types.includes(file));
    expect(others).toEqual([...modules, "CHANGELOG.md", "LICENSE", "README.md", "package.json"].sort());
    expect(types).toEqual(["all", "bus", "index", "postgres"].map((entry) => `dist/types/${entry}.d.ts`));
  });

  test("less than 600 kB of it", () => {
    expect(installed.packed.unpackedSize).toBeLessThan(600_000);
  });

  test("no module refers to a source map that is not there", () => {
    const modules = readdirSync("dist", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".js"));
    const texts = modules.map((file) => readFileSync(path.join("dist", file), "utf8"));
    expect(texts.filter((text) => text.includes("sourceMappingURL"))).toEqual([]);
  });
});

describe("the modules are small, and can still be read in a stack trace", () => {
  const line = (text: string) => text.trim().replace(/\(?file:.*\/|:\d+:\d+\)?$/g, "");

  test("functions, classes and private methods have their names", () => {
    const text = `import { SimpleQueue, Worker } from "localqueue";
      try { new SimpleQueue("./data", { unknown: 1 }); } catch (error) { console.log(error.stack); }
      const queue = new SimpleQueue("./data");
      const worker = new Worker(queue, () => {});
      await worker.stop();
      await worker.run().catch((error) => console.log(error.stack));
      await queue.close();`;
    const { output } = installed.runFile("stack.mjs", text);
    expect(output.split("\n").map(line)).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^at new SimpleQueue queue\.js$/),
        expect.stringMatching(/^at (Worker\.)?#\w{3,} worker\.js$/),
        expect.stringMatching(/^at Worker\.run worker\.js$/),
      ]),
    );
  });

  test("in lines of a length that a terminal shows", () => {
    const lines = readFileSync("dist/queue.js", "utf8").split("\n");
    expect(lines.length).toBeGreaterThan(50);
    expect(lines.filter((text) => text.length > 500)).toEqual([]);
  });
});

describe("the installed package works", () => {
  const program = `
    const queue = new SimpleQueue("./data", { name: NAME });
    await queue.put({ to: "hello@example.com" });
    const worker = new Worker(queue, (job) => console.log(NAME, job.data.to));
    while (await worker.runOnce());
    await queue.close();`;

  test("from an ES module", () => {
    const text = `import { SimpleQueue, Worker } from "localqueue"; const NAME = "esm"; ${program}`;
    expect(installed.runFile("esm.mjs", text)).toEqual({ code: 0, output: "esm hello@example.com\n", errors: "" });
  });

  test("from a CommonJS module", () => {
    const text = `const { SimpleQueue, Worker } = require("localqueue"); const NAME = "cjs";
      (async () => { ${program} })();`;
    const { code, output, errors } = installed.runFile("cjs.cjs", text);
    expect({ code, output }).toEqual({ code: 0, output: "cjs hello@example.com\n" });
    // Only this version of those that are supported still warned about it.
    expect(errors).toMatch(process.version.startsWith("v22.12.") ? /ExperimentalWarning/ : /^$/);
  });

  const bus = `
    const UserCreated = defineEvent("user.created");
    const topology = new BusTopology({ email: [UserCreated] });
    const { type, data } = UserCreated({ userId: "7" });
    console.log(data.userId, topology.subscriptionsFor(type));
    try { UserCreated([]); } catch (error) { console.log(error instanceof InvalidEventError); }`;
  const heard = { code: 0, output: "7 [ 'email' ]\ntrue\n" };

  test("with its event bus, from an ES module", () => {
    const text = `import { InvalidEventError } from "localqueue";
      import { BusTopology, defineEvent } from "localqueue/bus"; ${bus}`;
    expect(installed.runFile("bus.mjs", text)).toEqual({ ...heard, errors: "" });
  });

  test("with its event bus, from a CommonJS module", () => {
    const text = `const { InvalidEventError } = require("localqueue");
      const { BusTopology, defineEvent } = require("localqueue/bus"); ${bus}`;
    expect(installed.runFile("bus.cjs", text)).toMatchObject(heard);
  });

  test("from a thread, beside the main thread", () => {
    installed.write(
      "thread.mjs",
      `import { parentPort } from "node:worker_threads";
      import { SimpleQueue } from "localqueue";
      const queue = new SimpleQueue("./data", { name: "threads" });
      const job = await queue.get();
      await job.ack();
      await queue.close();
      parentPort.postMessage(job.data);`,
    );
    const text = `import { once } from "node:events";
      import { Worker as Thread } from "node:worker_threads";
      import { SimpleQueue } from "localqueue";
      const queue = new SimpleQueue("./data", { name: "threads" });
      const thread = new Thread(new URL("thread.mjs", import.meta.url));
      const heard = once(thread, "message");
      const ended = once(thread, "exit");
      await queue.put("from the main thread");
      console.log(...(await heard), ...(await ended), await queue.stats());
      await queue.close();`;
    const output = "from the main thread 0 { ready: 0, processing: 0, acked: 1, failed: 0 }\n";
    expect(installed.runFile("main.mjs", text)).toEqual({ code: 0, output, errors: "" });
  });

  test("as a command", () => {
    const command = path.join(installed.directory, "node_modules/.bin/localqueue");
    const { code, output, errors } = installed.run(command, ["--version"]);
    expect({ code, output: output.trim(), errors }).toEqual({ code: 0, output: manifest.version, errors: "" });
  });

  test("but only by what it exports", () => {
    const text = `import("localqueue/dist/queue.js").catch((error) => console.log(error.code));`;
    expect(installed.runFile("deep.mjs", text).output).toBe("ERR_PACKAGE_PATH_NOT_EXPORTED\n");
  });
});

describe("its types hold, checked to the last declaration", () => {
  const programs = {
    queue: readFileSync("test/programs/typed.ts", "utf8"),
    bus: readFileSync("test/programs/typed-bus.ts", "utf8"),
    postgres: readFileSync("test/programs/typed-postgres.ts", "utf8"),
  };
  const printed = {
    queue: {
      stats: { ready: 0, processing: 0, acked: 3, failed: 0 },
      code: "CLOSED",
      to: "d@example.com",
      refused: 10,
    },
    bus: {
      type: "measured",
      data: { text: 4 },
      got: ["for email", "user.created", '{"text":4}', '{"userId":"4","site":"a"}', 0],
      subscriptions: ["audit", "app audit 0", "app email 0"],
      code: "INVALID_EVENT",
      refused: 16,
    },
    postgres: {
      location: { kind: "postgres", schema: "jobs" },
      schema: "localqueue",
      code: "BAD_LOCATION",
      message: "PostgreSQL needs the package pg, which is not installed. Type: npm install pg@8",
      refused: 3,
    },
  };

  test.each([
    { type: "module", module: "nodenext" },
    { type: "commonjs", module: "nodenext" },
    { type: "commonjs", module: "node20" },
  ])("$type, compiled for $module", ({ type, module }) => {
    const name = `${type}-${module}`;
    const compilerOptions = {
      module,
      target: "es2023",
      lib: ["es2023"],
      strict: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: false,
      types: ["node"],
      typeRoots: [path.resolve("node_modules/@types")],
    };
    installed.write(`${name}/package.json`, JSON.stringify({ type }));
    const files = ["queue", "bus", "postgres"] as const;
    const sources = files.map((file) => `${file}.ts`);
    installed.write(`${name}/tsconfig.json`, JSON.stringify({ compilerOptions, files: sources }));
    for (const file of files) installed.write(`${name}/${file}.ts`, programs[file]);
    const tsc = [path.resolve("node_modules/typescript/bin/tsc"), "-p", name];
    expect(installed.run(process.execPath, tsc)).toEqual({ code: 0, output: "", errors: "" });

    for (const file of files) {
      const ran = installed.run(process.execPath, [path.join(name, `${file}.js`), `./data/${name}`]);
      expect(ran).toMatchObject({ code: 0, errors: "" });
      expect(JSON.parse(ran.output)).toEqual(printed[file]);
    }
  });

  test.each([
    ["localqueue", "index", programs.queue, 40],
    ["localqueue/bus", "bus/index", programs.bus, 10],
    ["localqueue/postgres", "postgres", programs.postgres, 3],
  ] as const)("the programs above use everything that %s exports", (_, module, program, least) => {
    const exported = readFileSync(`dist/${module}.d.ts`, "utf8").match(/(?<=[{,]\s+(?:type )?)(?!type )\w+/g) ?? [];
    expect(exported.length).toBeGreaterThan(least);
    expect(exported.filter((name) => !new RegExp(`\\b${name}\\b`).test(program))).toEqual([]);
  });
});
