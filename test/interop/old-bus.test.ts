import { readdirSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { BusTopology, type Event } from "../../dist/bus/index.js";
import { IDLE, openBus } from "../support/bus.ts";
import { faultsOf } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { tempDirectory } from "../support/temp.ts";
import { Task } from "./support/events.ts";
import { CURRENT, INSTALLED, interpreterOf } from "./support/python.ts";

/** The first two have no bus. */
const VERSIONS = INSTALLED.filter((version) => !version.startsWith("1.0."));

/** Where the packages of the current version are. */
function packages(): string {
  const root = path.resolve(path.dirname(interpreterOf(CURRENT)), "..");
  if (process.platform === "win32") return path.join(root, "Lib", "site-packages");
  const [python = ""] = readdirSync(path.join(root, "lib"));
  return path.join(root, "lib", python, "site-packages");
}

for (const version of VERSIONS) {
  test(`events go to and fro between this package and Python's ${version}, in files that either made`, async () => {
    for (const pythonIsFirst of [true, false]) {
      const directory = tempDirectory();
      const input = { location: directory, pydantic: packages() };
      const python = (more: object) =>
        new Program("../interop/python/old_bus.py", { ...input, ...more }, { interpreter: interpreterOf(version) });
      const bus = openBus({ location: directory, topology: new BusTopology({ work: [Task] }) });
      const work = bus.subscription("work");
      if (!pythonIsFirst) await work.stats();

      const dispatching = python({ dispatch: 1 });
      const dispatched = await dispatching.hears("event");
      await dispatching.end();
      const got: Event[] = [];
      work.handler(Task, (event) => void got.push(event));
      await bus.run(IDLE);
      const id = dispatched["event_id"];
      expect(got).toMatchObject([{ id, correlationId: id, causationId: undefined, data: { n: 1 } }]);

      const { eventId } = await bus.dispatch(Task({ n: 2 }));
      const handling = python({});
      expect(await handling.hears("event")).toMatchObject({ version, event_id: eventId, n: 2 });
      await handling.end();
      expect(await work.stats()).toEqual({ ready: 0, processing: 0, acked: 2, failed: 0 });
      expect(faultsOf(directory)).toEqual([]);
    }
  });
}

test("versions that have a bus are there", () => {
  expect(VERSIONS.length).toBeGreaterThan(0);
});
