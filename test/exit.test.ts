import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { Program } from "./support/program.ts";

test("a process that calls process.exit() while it puts leaves everything that was acknowledged", async () => {
  const location = tempLocation();
  for (const exitAfter of [1, 2_500]) {
    const program = new Program("exit-now.mjs", { location, exitAfter });
    expect(await program.ends()).toEqual({ code: 0, signal: null, stderr: "" });
    const put = program.said("put");
    expect(put.length).toBe(exitAfter);
    expect(program.said("unhandled")).toEqual([]);
    const rows = new Map(
      select(location, "SELECT id, CAST(payload AS TEXT) AS n FROM messages").map(({ id, n }) => [id, Number(n)]),
    );
    expect(put.filter(({ id, n }) => rows.get(id as number) !== n)).toEqual([]);
  }
  await using queue = new SimpleQueue(location);
  await queue.put("still works");
  expect(faultsOf(location)).toEqual([]);
});

test.each([false, true])(
  "a script that forgets to close its queue ends by itself, with status 0 (put under way: %s)",
  async (lastPut) => {
    const location = tempLocation();
    const program = new Program("forgetful.mjs", { location, lastPut });
    expect(await program.ends(10_000)).toEqual({ code: 0, signal: null, stderr: "" });
    expect(program.messages.map(({ say }) => say)).toEqual(["put", "acked", ...(lastPut ? ["put"] : [])]);
    expect(select(location, "SELECT status, count(*) AS jobs FROM messages GROUP BY 1")).toEqual([
      ...(lastPut ? [{ status: 0, jobs: 1 }] : []),
      { status: 2, jobs: 1 },
    ]);
    expect(faultsOf(location)).toEqual([]);
  },
);

test.each([false, true])(
  "a process whose handlers only wait for their signals goes on until these abort (runOnce: %s)",
  async (once) => {
    const program = new Program("waits-for-signal.mjs", { location: tempLocation(), once });
    expect(await program.ends(10_000)).toEqual({ code: 0, signal: null, stderr: "" });
    expect(program.messages).toEqual([{ say: "retried", error: "TimeoutError" }, { say: "closed" }]);
  },
);
