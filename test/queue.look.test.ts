import fs from "node:fs";
import path from "node:path";
import { QueueClosedError, type Serializer, SimpleQueue } from "localqueue";
import { expect, test } from "vitest";
import { lacks } from "./support/capabilities.ts";
import { select } from "./support/inspect.ts";
import { tempLocation } from "./support/location.ts";
import { openQueue } from "./support/queue.ts";
import { Script } from "./support/script.ts";
import { tempDirectory } from "./support/temp.ts";

test("a job can be looked at without being claimed", async () => {
  const queue = openQueue({ name: "emails", leaseMs: 10_000 });
  const { id } = await queue.put({ to: "a@example.com" }, { jobId: "first" });
  const job = await queue.get();
  await job.nack({ delayMs: 60_000, lastError: new TypeError("no such address") });
  const info = await queue.find({ jobId: "first" });
  expect(info).toEqual({
    id,
    queue: "emails",
    state: "ready",
    attempts: 1,
    availableAt: expect.any(Date),
    leaseExpiresAt: undefined,
    jobId: "first",
    lastError: "TypeError: no such address",
    createdAt: job.enqueuedAt,
    updatedAt: expect.any(Date),
  });
  expect(info?.availableAt.getTime()).toBe((info?.updatedAt.getTime() ?? 0) + 60_000);
  expect(await queue.find({ id })).toEqual(info);
  expect(await queue.list({ state: "ready" })).toEqual([info]);
  expect(await queue.find({ id: id + 1 })).toBeUndefined();
  const second = await queue.put("another");
  const claimed = await queue.get();
  expect((await queue.find({ id: second.id }))?.leaseExpiresAt).toEqual(claimed.leaseExpiresAt);
});

test("one dead letter that cannot be decoded does not hide the others", async () => {
  const location = tempLocation();
  const serializer: Serializer<string> = {
    encode: (text) => Buffer.from(text),
    decode: async (bytes) => {
      const text = Buffer.from(bytes).toString();
      bytes.fill(0); // whatever it does with them
      if (text.startsWith("bad")) throw new RangeError(`cannot decode ${text}`);
      return text;
    },
  };
  const queue = openQueue({ location, serializer });
  await queue.putMany(["good one", "bad one", "good two"]);
  for (const job of await queue.getMany(3)) await job.fail({ lastError: new Error("no"), category: "test" });
  const letters = await queue.listFailed();
  const [good, bad] = letters;
  expect(letters.map(({ id, decoded }) => [id, decoded])).toEqual([
    [1, true],
    [2, false],
    [3, true],
  ]);
  expect(good).toEqual({
    id: 1,
    attempts: 1,
    reason: "explicit_permanent_failure",
    category: "test",
    lastError: "Error: no",
    jobId: undefined,
    createdAt: expect.any(Date),
    updatedAt: expect.any(Date),
    rawPayload: new Uint8Array(Buffer.from("good one")),
    decoded: true,
    data: "good one",
  });
  expect(bad).toMatchObject({ reason: "undecodable_payload", category: undefined });
  expect(bad).toMatchObject({ decodeError: "RangeError: the serializer could not decode the payload" });
  expect(Buffer.from(bad?.rawPayload ?? []).toString()).toBe("bad one");
  expect(select(location, "SELECT status FROM messages")).toEqual(Array(3).fill({ status: 3 }));
});

test("a payload of null is a payload", async () => {
  const queue = openQueue();
  await queue.put(null);
  await (await queue.get()).fail();
  expect((await queue.listFailed())[0]).toMatchObject({ decoded: true, data: null });
});

test.skipIf(lacks("files"))("a queue that does not exist yet is created, as stats does", async () => {
  const location = path.join(tempDirectory(), "päth with späces 😀");
  const queue = openQueue({ location });
  expect(await queue.listFailed()).toEqual([]);
  expect(await queue.list({ state: "acked" })).toEqual([]);
  expect(fs.readdirSync(location)).toContain("localqueue.db");
});

test.skipIf(lacks("files"))(
  "a relative path stays where it was, whatever becomes of the working directory",
  async () => {
    const directory = tempDirectory();
    const program = `
    process.chdir(directory);
    const storage = openStorage("data", { queue: "default", fsync: undefined });
    process.chdir("/");
    await storage.put([entry("a")], {});
    print((await storage.find({ id: 1 })).state);
    await storage.close();`;
    expect(await new Script(directory, program).ended()).toMatchObject({ code: 0, errors: "", output: '"ready"\n' });
    expect(fs.existsSync(path.join(directory, "data/localqueue.db"))).toBe(true);
  },
);

test("a closed queue can no longer be looked at, and closing waits for those who look", async () => {
  const queue = new SimpleQueue(tempLocation());
  await queue.put("job");
  const looking = queue.find({ id: 1 });
  await queue.close();
  expect(await looking).toMatchObject({ state: "ready" });
  const refused = [queue.find({ id: 1 }), queue.list({ state: "ready" }), queue.listFailed()];
  for (const each of refused) await expect(each).rejects.toThrow(QueueClosedError);
});

test.skipIf(lacks("files")).each([true, false])(
  "files that were replaced are not looked at unawares (after a look: %s)",
  async (looked) => {
    const location = tempLocation();
    const queue = openQueue({ location });
    await queue.put("job");
    if (looked) expect(await queue.find({ id: 1 })).toMatchObject({ state: "ready" });
    for (const name of fs.readdirSync(location)) fs.rmSync(path.join(location, name));
    const other = new Script(location, `await open().put([entry("a"), entry("b")], {}); process.exit();`);
    expect(await other.ended()).toMatchObject({ code: 0, errors: "" });
    await expect(queue.find({ id: 2 })).rejects.toMatchObject({ code: "FILE_REPLACED" });
  },
);

test.each([
  ["while it looks", "await Promise.race(Array.from({ length: 100 }, list)); process.exit();"],
  ["before it looks", "void list(); process.exit();"],
  ["without closing anything", ""],
])("a process that looks inside ends with status 0: %s", async (_, end) => {
  const program = `
    const storage = open();
    await storage.put(Array.from({ length: 5000 }, (_, i) => entry("payload " + i)), {});
    const list = () => storage.list({ state: "ready", limit: 10000 });
    print((await list()).length);
    ${end}`;
  const ended = await new Script(tempLocation(), program).ended();
  expect(ended).toMatchObject({ code: 0, signal: null, errors: "", output: "5000\n" });
});

test("a call that is under way keeps the process alive", async () => {
  const program = `
    const storage = open();
    await storage.put([entry("a")], {});
    await storage.find({ id: 1 });
    await sleep(50); // nobody has asked for anything
    void storage.list({ state: "ready", limit: 1 }).then((jobs) => print(jobs.length));`;
  expect(await new Script(tempLocation(), program).ended()).toMatchObject({ code: 0, errors: "", output: "1\n" });
});
