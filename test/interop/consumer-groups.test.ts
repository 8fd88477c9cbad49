import { expect, test } from "vitest";
import { BusTopology, EventBus } from "../../dist/bus/index.js";
import { openBus } from "../support/bus.ts";
import { faultsOf } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { tempDirectory } from "../support/temp.ts";
import { until } from "../support/until.ts";
import { Task } from "./support/events.ts";
import { PythonBus } from "./support/python-bus.ts";

test("two processes of each language share a subscription: each event is handled once, by one of them", async () => {
  const directory = tempDirectory();
  const events = 200;
  const bus = openBus({ location: directory, topology: new BusTopology({ work: [Task] }) });
  const nodes = [1, 2].map(
    () => new Program("bus.mjs", { location: directory, routes: { work: ["task"] }, runs: ["work"] }),
  );
  const pythons = [1, 2].map(() => new PythonBus(directory, { routes: { work: ["task"] } }));
  for (const node of nodes) await node.hears("running");
  for (const python of pythons) await python.hears("open");
  await bus.dispatchMany(
    Array.from({ length: events }, (_, n) =>
      Task({ n, waitsMs: 20, does: { wait: 0.02 } } as Parameters<typeof Task>[0]),
    ),
  );
  const runs = pythons.map((python) => python.run(["work"], { concurrency: 4, idle_timeout: 1 }));
  await until(async () => (await bus.subscription("work").stats()).acked === events, 20_000);
  const byPython = (await Promise.all(runs)).map((handled) => handled.map(({ data }) => data["n"] as number));
  for (const node of nodes) await node.end();
  const byNode = nodes.map((node) => node.said("handled").map(({ data }) => (data as { n: number }).n));
  const all = [...byPython, ...byNode];
  expect(all.flat().sort((a, b) => a - b)).toEqual(Array.from({ length: events }, (_, n) => n));
  for (const own of all) expect(own.length).toBeGreaterThan(0);
  expect(faultsOf(directory)).toEqual([]);
});

test("an event whose Python process was killed is handled here when its lease ends, as the second attempt, and the reverse", async () => {
  const directory = tempDirectory();
  const options = { routes: { work: ["task"] }, delivery: { lease_seconds: 0.3 } };
  const topology = new BusTopology({ work: [Task] });
  const bus = openBus({ location: directory, topology, leaseMs: 300 });
  await bus.dispatch(Task({ n: 1, does: { kill: true, until: 1 } }));
  const victim = new PythonBus(directory, options);
  victim.run(["work"]).catch(() => {});
  expect(await victim.ends()).toMatchObject({ signal: "SIGKILL" });
  const attempts: number[] = [];
  bus.subscription("work").handler(Task, (_, { attempt }) => void attempts.push(attempt));
  await bus.run({ idleTimeoutMs: 600 });
  expect(attempts).toEqual([2]);

  const location = tempDirectory();
  const dispatcher = new EventBus(location, { topology });
  await dispatcher.dispatch(Task({ n: 1, kills: true } as Parameters<typeof Task>[0]));
  await dispatcher.close();
  const input = { location, routes: { work: ["task"] }, runs: ["work"], options: { leaseMs: 300 } };
  expect(await new Program("bus.mjs", input).ends()).toMatchObject({ signal: "SIGKILL" });
  const handled = await new PythonBus(location, options).run(["work"], { idle_timeout: 1 });
  expect(handled.map(({ attempt }) => attempt)).toEqual([2]);
  // What Python did alone is counted as soon as the file is opened here.
  const again = openBus({ location, topology });
  expect(await again.subscription("work").stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
  expect([...faultsOf(directory), ...faultsOf(location)]).toEqual([]);
});
