import { availableParallelism } from "node:os";
import { expect, test } from "vitest";
import { Lookout } from "../dist/storage/sqlite/lookout.js";

/** Whether anything is looked at, when nothing comes. */
function looks(lookout: Lookout): boolean {
  let looked = false;
  lookout.sees(() => {
    looked = true;
    return false;
  });
  return looked;
}

test.runIf(availableParallelism() > 1)(
  "a look-out that is in vain again and again is left out more and more often",
  () => {
    const lookout = new Lookout(0.05);
    const looked = Array.from({ length: 15 }, () => looks(lookout));
    const [yes, no] = [true, false];
    expect(looked).toEqual([yes, yes, no, no, no, no, yes, no, no, no, no, no, no, no, no]);
    expect(lookout.sees(() => true)).toBe(true);
    expect([looks(lookout), looks(lookout)]).toEqual([true, true]);
  },
);

test.runIf(availableParallelism() > 1)("a look-out ends as soon as something comes, and soon if nothing does", () => {
  let looks = 0;
  expect(new Lookout(60_000).sees(() => ++looks === 3)).toBe(true);
  expect(looks).toBe(3);
  const start = performance.now();
  expect(new Lookout(0.05).sees(() => false)).toBe(false);
  expect(performance.now() - start).toBeLessThan(1_000);
});
