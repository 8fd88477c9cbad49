import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import type { Row } from "../../dist/storage/sqlite/driver.js";
import { faultsOf, select } from "../support/inspect.ts";
import { Program } from "../support/program.ts";
import { createPythonFile, PYTHON_VERSIONS } from "../support/python-files.ts";
import { tempDirectory } from "../support/temp.ts";
import { CHANGES, type Change, HOUR_MS } from "./support/changes.ts";
import { Layer } from "./support/size.ts";

type Tables = Record<string, Row[]>;

const TABLES = {
  // As a text, which is compared much faster than bytes.
  messages: "SELECT *, CAST(payload AS TEXT) AS payload FROM messages ORDER BY id",
  edges: "SELECT * FROM event_bus_delivery_edges ORDER BY 1, 2",
  counts: "SELECT queue, ready, processing, acked, failed FROM localqueue_counts WHERE queue <> '' ORDER BY queue",
};
const LAYOUT = { layout: "SELECT type, name, sql FROM sqlite_schema ORDER BY name" };

function tablesOf(location: string, queries: Record<string, string> = TABLES): Tables {
  return Object.fromEntries(Object.entries(queries).map(([name, sql]) => [name, select(location, sql)]));
}

/** The same, with all that a change made new, and that differs each time, in words. */
function relativeTo(before: Tables, { messages = [], ...others }: Tables): Tables {
  const rows = messages.map((row) => {
    const old = before["messages"]?.find(({ id }) => id === row["id"]);
    const tell = (name: string, value: unknown): unknown => {
      if (value === null || value === old?.[name]) return value;
      const ms = Number(value) - Number(row["updated_at"]);
      // When a job was ready that is not any more tells nothing.
      if (name === "available_at") return row["status"] === 0 ? ms : "then";
      if (["created_at", "updated_at", "lease_until"].includes(name)) return ms;
      return name === "receipt" ? "a new one" : value;
    };
    return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, tell(name, value)])) as Row;
  });
  return { ...others, messages: rows };
}

const KILLED = { code: null, signal: "SIGKILL", stderr: "" };
const MOMENTS = {
  "after BEGIN": "before",
  "before COMMIT": "before",
  "after COMMIT": "after",
  "before the answer": "after",
} as const;

/** A place for a file and copies of it. */
class Place {
  readonly root: string;
  readonly origin: string;

  constructor(root: string) {
    this.root = mkdtempSync(path.join(root, "place-"));
    this.origin = path.join(this.root, "origin");
    mkdirSync(this.origin);
  }

  async fill<T>(work: (queue: SimpleQueue) => Promise<T>): Promise<T> {
    await using queue = new SimpleQueue(this.origin, { leaseMs: HOUR_MS });
    await queue.stats();
    return await work(queue);
  }

  copy(name: string): string {
    const location = path.join(this.root, name);
    cpSync(this.origin, location, { recursive: true });
    return location;
  }
}

/** Opens a file as whoever comes next does. */
async function reopen(location: string): Promise<void> {
  await using queue = new SimpleQueue(location);
  await queue.stats();
}

/** Kills a process at each moment of a transaction: all of it is to be there, or nothing. */
async function change(place: Place, layer: Layer, { prepare }: Change): Promise<void> {
  const input = await place.fill(prepare);
  const before = tablesOf(place.origin);
  const unharmed = new Program("engine-crash.mjs", { ...input, location: place.copy("unharmed"), moment: "never" });
  expect(await unharmed.ends()).toEqual({ code: 0, signal: null, stderr: "" });
  const after = relativeTo(before, tablesOf(path.join(place.root, "unharmed")));
  expect(after).not.toEqual(before);

  const kill = async (moment: keyof typeof MOMENTS): Promise<void> => {
    layer.planned();
    const location = place.copy(moment);
    const program = new Program("engine-crash.mjs", { ...input, location, moment });
    expect(await program.ends(), moment).toEqual(KILLED);
    layer.delivered();
    expect(program.messages, moment).toEqual([]);
    await reopen(location);
    const found = relativeTo(before, tablesOf(location));
    expect(found, moment).toEqual(MOMENTS[moment] === "before" ? before : after);
    expect(faultsOf(location), moment).toEqual([]);
  };
  await Promise.all(Object.keys(MOMENTS).map((moment) => kill(moment as keyof typeof MOMENTS)));
}

interface LongWork {
  readonly program: string;
  readonly input: (location: string) => object;
  /** What the program says when it is over. */
  readonly end: string;
  /** Looks at what a killed process left. */
  readonly check: (location: string) => Promise<void>;
}

/** Kills one process after the other, each a step later, until one gets to the end. */
async function killEverywhere(place: Place, layer: Layer, { program, input, end, check }: LongWork): Promise<void> {
  let [step, over] = [0, false];
  const killOneAfterAnother = async (): Promise<void> => {
    while (!over) {
      const killAt = ++step;
      const location = place.copy(`killed-${killAt}`);
      const victim = new Program(program, { ...input(location), killAt });
      const exit = await victim.ends();
      if (victim.said(end).length > 0) over = true;
      else {
        expect(exit, `step ${killAt}`).toEqual(KILLED);
        layer.planned();
        layer.delivered();
      }
      await check(location);
      rmSync(location, { recursive: true });
    }
  };
  await Promise.all([killOneAfterAnother(), killOneAfterAnother()]);
}

async function migration(place: Place, layer: Layer, version: (typeof PYTHON_VERSIONS)[number]): Promise<void> {
  createPythonFile(place.origin, version);
  const whole = place.copy("whole");
  await reopen(whole);
  const expected = tablesOf(whole, { ...TABLES, ...LAYOUT });
  await killEverywhere(place, layer, {
    program: "crash-anywhere.mjs",
    input: (location) => ({ location }),
    // Then it goes on with other things.
    end: "answer",
    check: async (location) => {
      await reopen(location);
      const { messages = [], ...found } = tablesOf(location, { ...TABLES, ...LAYOUT });
      expect(messages.slice(0, expected["messages"]?.length)).toEqual(expected["messages"]);
      expect(found["layout"]).toEqual(expected["layout"]);
      expect(faultsOf(location)).toEqual([]);
    },
  });
}

async function fillLargely(queue: SimpleQueue): Promise<void> {
  await queue.putMany(Array.from({ length: 300 }, (_, i) => `${i} ${"x".repeat(20_000)}`));
  for (const job of await queue.getMany(200)) await job.ack();
  await queue.purge({ olderThanMs: 0 });
}

async function backup(place: Place, layer: Layer): Promise<void> {
  await place.fill(fillLargely);
  const before = tablesOf(place.origin);
  await killEverywhere(place, layer, {
    program: "../reliability/programs/care-crash.mjs",
    input: (location) => ({ location, task: "backup", target: `${location}-copy` }),
    end: "finished",
    check: async (location) => {
      await reopen(location);
      expect(tablesOf(location)).toEqual(before);
      expect(faultsOf(location)).toEqual([]);
      const copy = `${location}-copy`;
      // What has the name of a database is one.
      if (!existsSync(path.join(copy, "localqueue.db"))) return;
      layer.count("backups");
      expect(tablesOf(copy)).toEqual(before);
      expect(faultsOf(copy)).toEqual([]);
    },
  });
}

async function vacuum(place: Place, layer: Layer): Promise<void> {
  await place.fill(fillLargely);
  const before = tablesOf(place.origin);
  await killEverywhere(place, layer, {
    program: "../reliability/programs/care-crash.mjs",
    input: (location) => ({ location, task: "vacuum" }),
    end: "finished",
    check: async (location) => {
      await reopen(location);
      expect(tablesOf(location)).toEqual(before);
      expect(faultsOf(location)).toEqual([]);
    },
  });
}

test("wherever a process is killed, what it was doing is done or not begun, and what it was told is done is done", async () => {
  const layer = new Layer({ name: "failpoints", rounds: 1 });
  const directory = tempDirectory();
  const everything: (readonly [string, (place: Place) => Promise<void>])[] = [
    ...CHANGES.map((each) => [each.name, (place: Place) => change(place, layer, each)] as const),
    ...PYTHON_VERSIONS.map((version) => [version, (place: Place) => migration(place, layer, version)] as const),
    ["backup", (place) => backup(place, layer)],
    ["vacuum", (place) => vacuum(place, layer)],
  ];
  for (const seed of layer.seeds()) {
    for (const [name, kills] of layer.partOf(everything, seed)) {
      const place = new Place(directory);
      await layer.round(seed, async () => {
        await kills(place).catch((error: unknown) => {
          throw new Error(`${name}: ${error instanceof Error ? error.message : error}`, { cause: error });
        });
      });
      rmSync(place.root, { recursive: true });
    }
  }
  layer.done();
});
