import { configDefaults, defineConfig, type ViteUserConfig } from "vitest/config";

const config: ViteUserConfig = defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // They need minutes, or Python: see vitest.reliability.config.ts and vitest.interop.config.ts.
    exclude: [...configDefaults.exclude, "test/reliability/**", "test/interop/**"],
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
