import { SimpleQueue } from "localqueue";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { lockDatabase } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";
import { PostgresServer } from "./support/postgres-server.ts";
import { rejection } from "./support/storage.ts";
import { until } from "./support/until.ts";

/** A location whose connections have a setting of the server. */
function locationWith(location: string, setting: string): string {
  const url = new URL(location);
  url.searchParams.set("options", `-c ${setting}`);
  return url.href;
}

test.each(["statement_timeout=150", "lock_timeout=150"])(
  "with %s, an operation that waits for a lock too long fails, and nothing was written",
  async (setting) => {
    const plain = tempLocation();
    await using queue = new SimpleQueue(locationWith(plain, setting));
    await queue.put("first");
    const unlock = lockDatabase(plain);
    expect(await rejection(queue.put("second", { timeoutMs: 1_000 }))).toMatchObject({
      code: "BUSY",
      outcome: "failed",
    });
    unlock();
    expect(await queue.stats()).toMatchObject({ ready: 1 });
    await queue.put("third");
    expect(await queue.stats()).toMatchObject({ ready: 2 });
  },
);

test("a lock that is held for less time than an operation may take is waited for, whatever the server's time-outs", async () => {
  const plain = tempLocation();
  await using queue = new SimpleQueue(locationWith(plain, "lock_timeout=100"));
  await queue.put("first");
  const unlock = lockDatabase(plain);
  const begunAt = performance.now();
  const put = queue.put("second");
  await until(() => performance.now() - begunAt > 500); // longer than the server lets anybody wait for a lock
  unlock();
  expect(await put).toMatchObject({ inserted: true });
  expect(await queue.stats()).toMatchObject({ ready: 2 });
});

test("a server without a free connection is waited for, and told if that takes too long", async () => {
  const server = await PostgresServer.start({ settings: { max_connections: 12, superuser_reserved_connections: 0 } });
  onTestFinished(() => server.remove());
  const others: pg.Client[] = [];
  for (;;) {
    const client = new pg.Client({ connectionString: server.url() });
    client.on("error", () => {}); // when the server is removed
    try {
      await client.connect();
      others.push(client);
    } catch (error) {
      expect(error).toMatchObject({ code: "53300" });
      break;
    }
  }
  await using queue = new SimpleQueue(server.url());
  expect(await rejection(queue.put("no room", { timeoutMs: 300 }))).toMatchObject({
    code: "CONNECTION",
    outcome: "failed",
  });
  const put = queue.put("later");
  await Promise.all(others.map((client) => client.end()));
  expect(await put).toMatchObject({ inserted: true });
  expect(await queue.stats()).toMatchObject({ ready: 1 });
}, 60_000);
