import { expect, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { edgesOf, openBus, storedIn } from "./support/bus.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { type Message, Program } from "./support/program.ts";
import { until } from "./support/until.ts";

interface Work {
  readonly n: number;
  readonly waitsMs?: number;
  readonly emits?: readonly object[];
}
const Task = defineEvent<Work>("task");
const Note = defineEvent<Work>("note");
const routes = { work: ["task"], notes: ["note"] };
const topology = new BusTopology({ work: [Task], notes: [Note] });
const types = ["task", "note"];

/** How many handlers ran at once, at most. */
function peakOf(programs: readonly Program[]): number {
  const ends = programs.flatMap((program) => [
    ...program.said("handling").map(({ at }) => ({ at: at as number, step: 1 })),
    ...program.said("handled").map(({ at }) => ({ at: at as number, step: -1 })),
  ]);
  let [now, peak] = [0, 0];
  for (const { step } of ends.sort((a, b) => a.at - b.at || a.step - b.step)) {
    now += step;
    peak = Math.max(peak, now);
  }
  return peak;
}

test("processes that run the same subscription share its events: each is handled once, by as many as allowed", async () => {
  const location = tempLocation();
  await using bus = openBus({ location, topology });
  const events = 60;
  const input = { location, routes, types, runs: ["work"], subscriptionOptions: { concurrency: 2 } };
  const programs = [new Program("bus.mjs", input), new Program("bus.mjs", input)];
  for (const program of programs) await program.hears("running");
  await bus.dispatchMany(Array.from({ length: events }, (_, n) => Task({ n, waitsMs: 20 })));
  await until(async () => (await bus.subscription("work").stats()).acked === events, 20_000);
  for (const program of programs) await program.end();
  const handled = programs.flatMap((program) => program.said("handled").map(({ data }) => (data as Work).n));
  expect(handled.sort((a, b) => a - b)).toEqual(Array.from({ length: events }, (_, n) => n));
  for (const program of programs) expect(program.said("handled").length).toBeGreaterThan(0);
  expect(peakOf(programs)).toBeGreaterThan(2);
  expect(peakOf(programs)).toBeLessThanOrEqual(4);
  expect(faultsOf(location)).toEqual([]);
});

test("an event goes from the process that dispatches it through one that emits another to one that handles that", async () => {
  const location = tempLocation();
  const producer = new Program("bus.mjs", { location, routes, types });
  const worker = new Program("bus.mjs", { location, routes, types, runs: ["work"] });
  const notary = new Program("bus.mjs", { location, routes, types, runs: ["notes"] });
  for (const program of [producer, worker, notary]) await program.hears("running");
  producer.tell({ dispatch: [{ type: "task", n: 1, emits: [{ type: "note", n: 2 }] }] });
  await producer.hears("dispatched");
  expect(await notary.hears("event:acked")).toMatchObject({ subscription: "notes", data: { n: 2 } });
  for (const program of [producer, worker, notary]) await program.end();
  expect(worker.said("handled")).toHaveLength(1);
  const [task] = storedIn(location, "work");
  expect(storedIn(location, "notes")).toMatchObject([
    { correlation_id: task?.["event_id"], causation_id: task?.["event_id"] },
  ]);
  expect(edgesOf(location)).toMatchObject([[{ n: 1 }, { n: 2 }]]);
});

test("of two processes that dispatch the same business event, one stores it; one that says something else is refused", async () => {
  const location = tempLocation();
  const Paid = defineEvent<{ order: string; cents: number }>("paid", undefined, { identity: ["order"] });
  const buses = [1, 2].map(() => openBus({ location, topology: new BusTopology({ books: [Paid] }) }));
  const same = await Promise.all(buses.map((bus) => bus.dispatch(Paid({ order: "o1", cents: 5 }))));
  expect(same.flatMap(({ inserted }) => inserted).sort()).toEqual([false, true]);
  expect(same[0]?.messageIds).toEqual(same[1]?.messageIds);
  const other = await Promise.allSettled(buses.map((bus, cents) => bus.dispatch(Paid({ order: "o2", cents }))));
  expect(other.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  expect(storedIn(location, "books")).toHaveLength(2);
});

test("a process that was stopped past its lease loses the event, and all that it emitted", async () => {
  const location = tempLocation();
  const input = { location, routes, types, runs: ["work"], options: { leaseMs: 500 } };
  await using bus = openBus({ location, topology });
  const zombie = new Program("bus.mjs", input);
  await zombie.hears("running");
  await bus.dispatch(Task({ n: 1, waitsMs: 1_000, emits: [{ type: "note", n: 2 }] }));
  expect(await zombie.hears("handling")).toMatchObject({ attempt: 1 });
  zombie.signal("SIGSTOP");
  const successor = new Program("bus.mjs", input);
  expect(await successor.hears("event:acked")).toMatchObject({ data: { n: 1 } });
  const stored = storedIn(location, "notes");
  expect(stored).toHaveLength(1);
  zombie.signal("SIGCONT");
  await zombie.hears("handled");
  await zombie.hears("lease:lost");
  await successor.end();
  // It is fit for work again.
  await bus.dispatch(Task({ n: 3 }));
  expect(await zombie.hears("event:acked")).toMatchObject({ data: { n: 3 } });
  await zombie.end();
  expect(storedIn(location, "notes")).toEqual(stored);
  expect(edgesOf(location)).toHaveLength(1);
  expect(zombie.said("lease:lost")).toHaveLength(1);
  expect(faultsOf(location)).toEqual([]);
});

test("an event that an old process does not know is handled by a newer one beside it", async () => {
  const location = tempLocation();
  const old = new Program("bus.mjs", { location, routes: { work: ["task"] }, types: ["task"], runs: ["work"] });
  await old.hears("running");
  await using bus = openBus({ location, topology: new BusTopology({ work: [Task, Note] }) });
  await bus.dispatch(Note({ n: 1 }));
  const { error } = (await old.hears("error")) as Message & { error: string };
  expect(error).toContain('got an event of the type "note", which is not known here');
  const newer = new Program("bus.mjs", { location, routes: { work: ["task", "note"] }, types, runs: ["work"] });
  await newer.hears("running");
  // When it is due, the one that left it to others lets them go first.
  expect(await newer.hears("event:acked")).toMatchObject({ data: { n: 1 } });
  await old.end();
  await newer.end();
  expect(old.said("handling")).toEqual([]);
  expect(select(location, "SELECT status, attempts FROM messages")).toEqual([{ status: 2, attempts: 1 }]);
});
