import { defineConfig, type ViteUserConfig } from "vitest/config";

const minutes: number = Number(process.env["RELIABILITY_MINUTES"] ?? 8);

const config: ViteUserConfig = defineConfig({
  test: {
    include: ["test/reliability/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    // A layer minds its own time; this only ends one that hangs.
    testTimeout: (minutes + 5) * 60_000,
    hookTimeout: 60_000,
    // See vitest.config.ts.
    server: { deps: { external: [/\/dist\//] } },
    reporters: ["default", "./test/support/closing-line.ts"],
  },
});

export default config;
