import { expect, test } from "vitest";
import { Progress } from "../dist/cli/progress.js";
import { until } from "./support/until.ts";

function stream(isTTY: boolean): { readonly isTTY: boolean; readonly written: string[]; write(text: string): boolean } {
  const written: string[] = [];
  return {
    isTTY,
    written,
    write: (text) => {
      written.push(text);
      return true;
    },
  };
}

test("progress is shown ten times a second at most, and wiped away", async () => {
  const terminal = stream(true);
  const progress = new Progress(terminal);
  const startedAt = performance.now();
  let calls = 0;
  await until(() => {
    progress.show(++calls * 1_000);
    return performance.now() - startedAt > 350;
  });
  progress.clear();
  const shown = terminal.written.slice(0, -1);
  expect(shown.length).toBeGreaterThan(1);
  expect(shown.length).toBeLessThanOrEqual((performance.now() - startedAt) / 100 + 1);
  const [before, state] = shown[0]?.split("\r\x1b[K") ?? [];
  expect(before).toBe("");
  expect(state).toMatch(/^1,000 jobs, [\d,]+\/s$/);
  expect(terminal.written.at(-1)).toBe("\r\x1b[K");
  progress.clear();
  expect(terminal.written.length).toBe(shown.length + 1);
});

test("progress is not shown where it would end up in a file", () => {
  const file = stream(false);
  const progress = new Progress(file);
  progress.show(1);
  progress.clear();
  expect(file.written).toEqual([]);
});
