import { existsSync } from "node:fs";
import path from "node:path";
import { Reject } from "localqueue";
import { BusTopology, defineEvent, type Event, EventBus } from "localqueue/bus";
import { describe, expect, test } from "vitest";
import { runCli, typed } from "./support/cli.ts";
import { openDatabase } from "./support/database.ts";
import { addFinished } from "./support/finished-jobs.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { tempDirectory } from "./support/temp.ts";

const UserCreated = defineEvent<object>("user.created");

interface UsedBus {
  readonly location: string;
  /** What was dispatched, in this order. */
  readonly events: readonly Event[];
  readonly ids: readonly string[];
}

/**
 * A file with a bus "app", whose subscription "email" got these events and did none of them: they were rejected, apart
 * from the last one, whose retries are used up. Its subscription "audit" did them all.
 */
async function deadLetters(...users: readonly object[]): Promise<UsedBus> {
  const location = tempLocation();
  const topology = new BusTopology({ email: [UserCreated], audit: ["*"] });
  const bus = new EventBus(location, { name: "app", topology, maxRetries: 0 });
  bus.on("event:failed", () => {});
  const events = users.map((user) => UserCreated(user));
  for (const event of events) await bus.dispatch(event); // each has the ids 2n - 1 (audit) and 2n (email)
  bus.subscription("audit").handler("*", () => {});
  bus.subscription("email").handler(UserCreated, ({ id }) => {
    if (id !== events.at(-1)?.id) throw new Reject("no such address", { category: "unknown-address" });
    throw new Error("timed out\n\x1b[31mafter 5 s");
  });
  await bus.run({ idleTimeoutMs: 1 });
  await bus.close();
  return { location, events, ids: events.map(({ id }) => id) };
}

const EMAIL = ["--bus", "app", "--subscription", "email"];
const on = (location: string, action: string, ...more: readonly string[]): string[] => {
  return ["bus", "failed", action, location, ...EMAIL, ...more];
};

async function countsOf(location: string, subscription: string): Promise<object> {
  const all: { subscription: string }[] = JSON.parse((await runCli(["bus", "stats", location, "--json"])).stdout);
  return all.find((one) => one.subscription === subscription) ?? {};
}

describe("bus stats", () => {
  test("shows all subscriptions of all buses", async () => {
    const { location } = await deadLetters(...Array.from({ length: 3 }, () => ({})));
    const later = new EventBus(location, { topology: new BusTopology({ billing: ["*"] }) });
    await later.dispatchMany(Array.from({ length: 1_234 }, () => UserCreated({})));
    await later.close();
    expect(await runCli(["bus", "stats", location])).toEqual({
      code: 0,
      stdout: `bus      subscription  ready  processing  acked  failed
app      audit             0           0      3       0
app      email             0           0      0       3
default  billing       1,234           0      0       0
`,
      stderr: "",
    });
    expect(await runCli(["bus", "stats", location, "--bus", "default", "--json"])).toEqual({
      code: 0,
      stdout: '[{"bus":"default","subscription":"billing","ready":1234,"processing":0,"acked":0,"failed":0}]\n',
      stderr: "",
    });
  });

  test("says so when no event was dispatched yet", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    expect(await runCli(["bus", "stats", location])).toEqual({
      code: 0,
      stdout: `No subscription has got an event in ${location}\n`,
      stderr: "",
    });
    expect((await runCli(["bus", "stats", location, "--json"])).stdout).toBe("[]\n");
  });

  test("tells of done events that outgrow the work, with what to type", async () => {
    const { location } = await deadLetters({});
    addFinished(location, { queue: "__bus__:app:audit", rows: 99_999 });
    const { code, stderr } = await runCli(["bus", "stats", location, "--json"]);
    const line = `localqueue bus purge ${typed(location)} --subscription audit --bus app --older-than 30d`;
    expect([code, stderr]).toEqual([
      0,
      `localqueue: 100,000 acked events are kept, 0 events to do. To remove old ones: ${line}\n`,
    ]);
  });
});

describe("bus failed list", () => {
  test("shows the types and ids of the events, in 80 columns", async () => {
    const { location, ids } = await deadLetters({}, {});
    const { code, stdout, stderr } = await runCli(on(location, "list"));
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toBe(`id  event type    event id                              reason                 …
 2  user.created  ${ids[0]}  rejected/unknown-addres…
 4  user.created  ${ids[1]}  retries_exhausted      …
`);
  });

  test("gives programs the envelopes, digit by digit", async () => {
    const { location, ids } = await deadLetters({ n: 1 }, {});
    const database = openDatabase(location);
    const set = database.prepare("UPDATE messages SET payload = :payload WHERE id = :id");
    const envelope = `{"event_id":"${ids[0]}","event_type":"user.created","event_created_at":0,"payload":{"n":1.0}}`;
    set.run({ id: 2, payload: Buffer.from(envelope) });
    set.run({ id: 4, payload: Buffer.from([255, 0]) });
    database.close();
    const { code, stdout, stderr } = await runCli(on(location, "list", "--json"));
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout.trimEnd().split("\n").length).toBe(1);
    expect(stdout).toContain(`"envelope":${envelope}}`);
    const [first, second] = JSON.parse(stdout);
    expect(first).toEqual({
      id: 2,
      subscription: "email",
      eventType: "user.created",
      eventId: ids[0],
      attempts: 1,
      reason: "rejected",
      category: "unknown-address",
      lastError: "Reject: no such address",
      createdAt: expect.stringMatching(/Z$/),
      updatedAt: expect.stringMatching(/Z$/),
      envelope: expect.anything(),
    });
    expect(second).toMatchObject({ id: 4, eventType: null, eventId: ids[1], payloadBase64: "/wA=" });
    expect((await runCli(on(location, "list"))).stdout).toMatch(/^ 4 {2}- {13}[0-9a-f-]{36} {2}retries_exhausted /m);
  });

  test("goes on from page to page, as it says", async () => {
    const { location } = await deadLetters({}, {}, {});
    const page = async (...args: string[]): Promise<[number[], string]> => {
      const { stdout, stderr } = await runCli(on(location, "list", "--json", ...args));
      return [JSON.parse(stdout).map(({ id }: { id: number }) => id), stderr];
    };
    const next = `localqueue bus failed list ${typed(location)} --subscription email --bus app --limit 1 --category unknown-address --after`;
    expect(await page("--limit", "1", "--category", "unknown-address")).toEqual([
      [2],
      `localqueue: There may be more: ${next} 2\n`,
    ]);
    expect(await page("--limit", "2", "--after", "4")).toEqual([[6], ""]);
    expect(await page("--reason", "retries_exhausted")).toEqual([[6], ""]);
  });

  test("says so when there is none", async () => {
    const { location } = await deadLetters({});
    expect((await runCli(on(location, "list", "--reason", "rejected"))).stdout).toBe(
      `No such dead letters: Subscription "email" of bus "app" in ${location}\n`,
    );
  });
});

describe("bus failed show", () => {
  test("shows all there is to know, and the envelope", async () => {
    const { location, ids } = await deadLetters({ name: "Ada" });
    const { code, stdout } = await runCli(on(location, "show", "2"));
    expect(code).toBe(0);
    const [facts = "", envelope = ""] = stdout.replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ/g, "TIME").split("\n\n");
    expect(facts.replace(/\d+ bytes/, "N bytes")).toBe(`Dead letter 2: Subscription "email" of bus "app" in ${location}
subscription  email
event type    user.created
event id      ${ids[0]}
put at        TIME
failed at     TIME
tries         1
reason        retries_exhausted
last error    Error: timed out\\u000a\\u001b[31mafter 5 s
envelope      JSON, N bytes`);
    expect(JSON.parse(envelope)).toMatchObject({ event_id: ids[0], payload: { name: "Ada" } });
    const json = await runCli(on(location, "show", "2", "--json"));
    expect(JSON.parse(json.stdout)).toMatchObject({ id: 2, eventId: ids[0], envelope: { payload: { name: "Ada" } } });
    expect(JSON.parse((await runCli(on(location, "show", "2", "--raw"))).stdout)).toEqual(JSON.parse(envelope));
  });

  test("knows the dead letters of the subscription only", async () => {
    const { location } = await deadLetters({});
    expect(await runCli(on(location, "show", "1"))).toEqual({
      code: 1,
      stdout: "",
      stderr: 'localqueue: NOT_FOUND: There is no dead letter 1 in subscription "email" of bus "app".\n',
    });
  });
});

describe.each([
  ["retry", "retried", "ready again", { ready: 2, failed: 1 }],
  ["purge", "purged", "deleted", { ready: 0, failed: 1 }],
])("bus failed %s", (action, counted, told, left) => {
  test("takes ids", async () => {
    const { location } = await deadLetters({}, {}, {});
    expect(await runCli(on(location, action, "2", "6"))).toEqual({
      code: 0,
      stdout: `2 events ${told}: Subscription "email" of bus "app" in ${location}\n`,
      stderr: "",
    });
    expect(await countsOf(location, "email")).toMatchObject(left);
  });

  test("tells which ids are unknown, and does the others", async () => {
    const { location } = await deadLetters({}, {}, {});
    const { code, stdout, stderr } = await runCli(on(location, action, "2", "1", "4", "--json"));
    expect([code, stdout]).toEqual([1, `{"${counted}":2,"unknown":[1]}\n`]);
    expect(stderr).toBe('localqueue: NOT_FOUND: There is no dead letter 1 in subscription "email" of bus "app".\n');
    expect(await countsOf(location, "email")).toMatchObject(left);
  });

  test("takes a filter, or all", async () => {
    const { location } = await deadLetters({}, {}, {});
    const filtered = await runCli(on(location, action, "--category", "unknown-address", "--json"));
    expect(filtered.stdout).toBe(`{"${counted}":2,"unknown":[]}\n`);
    expect(await countsOf(location, "email")).toMatchObject(left);
    expect((await runCli(on(location, action, "--all"))).stdout).toMatch(/^1 event /);
    expect(await countsOf(location, "email")).toMatchObject({ failed: 0 });
    expect(await countsOf(location, "audit")).toMatchObject({ acked: 3 });
  });

  test("does nothing if not told with which", async () => {
    const line = `localqueue bus failed ${action} ./data --subscription email --bus app`;
    expect(await runCli(on("./data", action), { cwd: tempDirectory() })).toEqual({
      code: 2,
      stdout: "",
      stderr: `localqueue: Which dead letters? Type one of:
  ${line} ID…
  ${line} --reason retries_exhausted
  ${line} --all
`,
    });
  });
});

test("a dead letter that was retried is handled by the next run of the bus", async () => {
  const { location, events } = await deadLetters({});
  await runCli(on(location, "retry", "--all"));
  const bus = new EventBus(location, { name: "app", topology: new BusTopology({ email: [UserCreated] }) });
  const handled: string[] = [];
  bus.subscription("email").handler(UserCreated, ({ id }) => void handled.push(id));
  await bus.run({ idleTimeoutMs: 1 });
  await bus.close();
  expect(handled).toEqual([events[0]?.id]);
});

describe("bus purge", () => {
  test("deletes the done events of one subscription", async () => {
    const { location } = await deadLetters({}, {});
    const audit = ["--bus", "app", "--subscription", "audit", "--older-than"];
    expect((await runCli(["bus", "purge", location, ...audit, "1h", "--json"])).stdout).toBe('{"purged":0}\n');
    expect(await runCli(["bus", "purge", location, ...audit, "0"])).toEqual({
      code: 0,
      stdout: `2 events deleted: Subscription "audit" of bus "app" in ${location}\n`,
      stderr: "",
    });
    expect(await countsOf(location, "audit")).toMatchObject({ acked: 0 });
    expect(await countsOf(location, "email")).toMatchObject({ failed: 2 });
    const all = await runCli(["bus", "purge", location, ...EMAIL, "--older-than", "0", "--include-failed", "--json"]);
    expect(all.stdout).toBe('{"purged":2}\n');
  });

  test("wants to know how old", async () => {
    const { code, stderr } = await runCli(["bus", "purge", "./data", ...EMAIL]);
    expect([code, stderr]).toEqual([
      2,
      "localqueue: Say how old the events must be: localqueue bus purge ./data --subscription email --bus app --older-than 30d\n",
    ]);
  });
});

describe("a name that the file does not know is answered with those that it knows, and exit code 1:", () => {
  test.each<[string[], string]>([
    [["stats", "--bus", "other"], 'event bus "other" in DATA; there is "app": type --bus app.'],
    [["failed list", "--subscription", "email"], 'event bus "default" in DATA; there is "app": type --bus app.'],
    [
      ["failed show", "1", "--bus", "app", "--subscription", "emial"],
      'subscription "emial" of bus "app" in DATA; there are "audit", "email".',
    ],
    [
      ["failed retry", "--all", "--bus", "app", "--subscription", "__proto__"],
      'subscription "__proto__" of bus "app" in DATA; there are "audit", "email".',
    ],
    [["purge", "--older-than", "1h", "--subscription", "email"], 'event bus "default" in DATA; there is "app"'],
  ])("bus %j", async ([command = "", ...args], answer) => {
    const { location } = await deadLetters({});
    const { code, stdout, stderr } = await runCli(["bus", ...command.split(" "), location, ...args]);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr.replace(location, "DATA")).toContain(`localqueue: There is no ${answer}`);
  });

  test("among several buses", async () => {
    const { location } = await deadLetters({});
    const bus = new EventBus(location, { name: "shop", topology: new BusTopology({ email: ["*"] }) });
    await bus.dispatch(UserCreated({}));
    await bus.close();
    const { code, stderr } = await runCli(["bus", "failed", "list", location, "--subscription", "email"]);
    expect([code, stderr]).toEqual([
      1,
      `localqueue: There is no event bus "default" in ${location}; there are "app", "shop".\n`,
    ]);
  });

  test("in a file that has none", async () => {
    const location = tempLocation();
    await openQueue({ location }).put(1);
    const { code, stderr } = await runCli(["bus", "failed", "list", location, "--subscription", "email"]);
    expect([code, stderr]).toEqual([1, `localqueue: There is no event bus "default" in ${location}; there is none.\n`]);
  });

  test.each([["stats"], ["failed list", ...EMAIL], ["failed purge", "--all", ...EMAIL]])(
    "bus %s of a place without a queue creates nothing",
    async (command, ...more) => {
      const cwd = tempDirectory();
      expect(await runCli(["bus", ...command.split(" "), "./a", ...more], { cwd })).toEqual({
        code: 1,
        stdout: "",
        stderr: "localqueue: There is no queue in ./a: it has no localqueue.db.\n",
      });
      expect(existsSync(path.join(cwd, "a"))).toBe(false);
    },
  );
});

describe("what is typed wrong is answered with what to type, and exit code 2:", () => {
  const actions = "bus failed list, bus failed show, bus failed retry, bus failed purge";
  const queueOfBus =
    'Queues like "__bus__:…" belong to event buses. Type localqueue bus stats ./a, or localqueue bus --';

  test.each<[string[], string]>([
    [["bus"], `Say what to do. The commands are bus stats, ${actions}, bus purge.`],
    [["bus", "failed"], `Say what to do. The commands are ${actions}.`],
    [["bus", "stat", "./a"], 'Unknown command "bus stat". Did you mean "bus stats"?'],
    [["bus", "fialed", "list"], 'Unknown command "bus fialed". Did you mean "bus failed"?'],
    [["bus", "failed", "lst", "./a"], 'Unknown command "bus failed lst". Did you mean "bus failed list"?'],
    [["bus", "./a"], 'Unknown command "bus ./a". The commands are bus stats, bus failed list,'],
    [["bus", "stats"], "The location is missing. Usage: localqueue bus stats <location> [options]"],
    [["bus", "stats", "./a", "--queue", "b"], 'Unknown option "--queue". localqueue bus stats --help lists'],
    [
      ["bus", "stats", "mysql://db"],
      "Expected <location> to be a directory (a path or a file: URL) or a postgres: URL, got a mysql: URL.",
    ],
    [
      ["bus", "failed", "list", "./a", "--bus", "app"],
      "The subscription is missing: --subscription NAME; localqueue bus stats ./a --bus app lists them.",
    ],
    [
      ["bus", "failed", "show", "./a", ...EMAIL, "c4b3ffac-bf14-45bc-a880-9901cb093d10"],
      '"c4b3ffac-bf14-45bc-a880-9901cb093d10" is no id of a dead letter, which is an integer from 1.',
    ],
    [
      ["bus", "failed", "show", "./a", ...EMAIL],
      "The id is missing; localqueue bus failed list ./a --subscription email --bus app shows them.",
    ],
    [["stats", "./a", "--queue", "__bus__:app:email"], queueOfBus],
    [["failed", "list", "./a", "--queue", "__bus__:app:email"], queueOfBus],
    [["put", "./a", "1", "--queue", "__bus__:app:email"], queueOfBus],
  ])("%j", async (args, answer) => {
    const cwd = tempDirectory();
    const { code, stdout, stderr } = await runCli(args, { cwd });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.startsWith(`localqueue: ${answer}`), stderr).toBe(true);
    expect(existsSync(path.join(cwd, "a"))).toBe(false);
  });

  test("bus failed list --reason bad", async () => {
    const { location } = await deadLetters({});
    const { code, stdout, stderr } = await runCli(on(location, "list", "--reason", "bad"));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^localqueue: Expected --reason to be .*\.\n$/);
  });
});
