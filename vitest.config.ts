import { configDefaults, defineConfig, type ViteUserConfig } from "vitest/config";
import { POSTGRES } from "./test/support/test-files.ts";

const config: ViteUserConfig = defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // They need minutes, Python or PostgreSQL: see the vitest.*.config.ts beside this one.
    exclude: [...configDefaults.exclude, "test/reliability/**", "test/interop/**", `test/${POSTGRES}*`],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    // Node itself loads the built package, as it does for a user: `import.meta.url` is the real file,
    // so worker threads and child processes start from the same files.
    server: { deps: { external: [/\/dist\//] } },
    reporters: ["default", "./test/support/closing-line.ts"],
  },
});

export default config;
