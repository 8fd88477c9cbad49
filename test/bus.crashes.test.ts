import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { edgesOf, IDLE, listenToBus, openBus, storedIn } from "./support/bus.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { type Message, Program } from "./support/program.ts";
import { until } from "./support/until.ts";

interface Work {
  readonly n: number;
  readonly kills?: boolean;
  readonly emits?: readonly object[];
}
const Task = defineEvent<Work>("task");
const Note = defineEvent<{ n: number }>("note");
const routes = { work: ["task"], audit: ["note"], notes: ["note"] };
const topology = new BusTopology({ work: [Task], audit: [Note], notes: [Note] });
const numberOf = ({ payload }: Record<string, unknown>): number => (payload as Work).n;

test("wherever a process is killed, an event is handled, and what it emitted is stored once with its acknowledgement", async () => {
  const location = tempLocation();
  const tasks = 1_500;
  const kills = 12;
  await using bus = openBus({ location, topology, maxRetries: kills });
  const input = {
    location,
    routes,
    types: ["task", "note"],
    runs: ["work"],
    options: { leaseMs: 1_000 },
    subscriptionOptions: { concurrency: 4 },
  };
  const all = Array.from({ length: tasks }, (_, n) => n);
  await bus.dispatchMany(all.map((n) => Task({ n, emits: [{ type: "note", n }] })));
  const handled = new Set<number>();
  let told: Message[] = [];
  for (let kill = 0; kill < kills; kill++) {
    const program = new Program("bus.mjs", input);
    await program.hears("handled");
    await sleep(Math.random() * 60); // at any moment
    await program.kill();
    told = [...told, ...program.messages];
  }
  const last = new Program("bus.mjs", input);
  await until(async () => (await bus.subscription("work").stats()).acked === tasks, 60_000);
  await last.end();
  told = [...told, ...last.messages];

  for (const { say, data } of told) if (say === "handled") handled.add((data as Work).n);
  expect(handled.size).toBe(tasks);
  // What a process said was acknowledged, was.
  expect(told.filter(({ say }) => say === "event:acked").length).toBeLessThanOrEqual(tasks);
  for (const name of ["audit", "notes"]) {
    expect(
      storedIn(location, name)
        .map(numberOf)
        .sort((a, b) => a - b),
    ).toEqual(all);
  }
  const edges = edgesOf(location) as [Work, Work][];
  expect(edges).toHaveLength(2 * tasks);
  expect(edges.every(([parent, child]) => parent.n === child.n)).toBe(true);
  // Some moments were between the handler's end and the commit.
  expect(told.filter(({ say }) => say === "handled").length).toBeGreaterThan(tasks);
  expect(faultsOf(location)).toEqual([]);
}, 120_000);

test("an event whose handler kills the process each time becomes a dead letter, and emits nothing", async () => {
  const location = tempLocation();
  await using bus = openBus({ location, topology, maxRetries: 1 });
  const { messageIds } = await bus.dispatch(Task({ n: 1, kills: true, emits: [{ type: "note", n: 1 }] }));
  const input = { location, routes, types: ["task", "note"], runs: ["work"], options: { leaseMs: 200 } };
  for (const attempt of [1, 2]) {
    const program = new Program("bus.mjs", input);
    expect(await program.hears("handling")).toMatchObject({ attempt });
    await program.ends();
  }
  await using other = openBus({ location, topology });
  const told = listenToBus(other);
  let calls = 0;
  other.subscription("work").handler(Task, () => void calls++);
  await until(async () => {
    await bus.subscription("work").stats();
    return select(location, "SELECT max(lease_until) AS until FROM messages").every(
      ({ until }) => until === null || Number(until) < Date.now(),
    );
  });
  await other.run({ ...IDLE, idleTimeoutMs: 300 });
  expect(calls).toBe(0);
  expect(told).toEqual([]);
  expect(await bus.subscription("work").listFailed()).toMatchObject([
    { id: messageIds[0], reason: "retries_exhausted", attempts: 2, event: { data: { n: 1 } } },
  ]);
  expect(storedIn(location, "notes")).toEqual([]);
});
