import { defineConfig, mergeConfig, type ViteUserConfig } from "vitest/config";
import config from "./vitest.config.ts";

/** The tests that need Python: see scripts/test-interop.mjs. */
const { include: _, exclude: __, ...rest } = config.test ?? {};
const interop: ViteUserConfig = mergeConfig(
  defineConfig({ ...config, test: rest }),
  defineConfig({ test: { include: ["test/interop/**/*.test.ts"] } }),
);

export default interop;
