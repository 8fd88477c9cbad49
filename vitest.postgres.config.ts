import { defineConfig, mergeConfig, type ViteUserConfig } from "vitest/config";
import { ON_BOTH, POSTGRES } from "./test/support/test-files.ts";
import config from "./vitest.config.ts";

/** The tests of both storages on PostgreSQL, and those of its own: see scripts/test-postgres.mjs. */
const { include: _, exclude: __, ...rest } = config.test ?? {};
const postgres: ViteUserConfig = mergeConfig(
  defineConfig({ ...config, test: rest }),
  defineConfig({
    test: {
      include: [...ON_BOTH, `${POSTGRES}*`].map((name) => `test/${name}.test.ts`),
      globalSetup: "test/support/postgres-setup.ts",
    },
  }),
);

export default postgres;
