import { describe, expect, test } from "vitest";
import { SimpleQueue } from "../dist/index.js";
import { openStorage } from "../dist/storage/location.js";
import { LEASE_MS, put } from "./contract/jobs.ts";
import { lacks } from "./support/capabilities.ts";
import { tempLocation } from "./support/location.ts";
import { openBare } from "./support/python-files.ts";

// Payloads of the default serializer cross from thread to thread as text; nothing of that may show.

const insert = `INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
  VALUES ('default', `;

async function withPayload(sql: string): Promise<SimpleQueue> {
  const location = tempLocation();
  const queue = new SimpleQueue(location);
  await queue.stats();
  const database = openBare(location);
  database.exec(`${insert}${sql}, 0, 0, 4, 5, 5, 5)`);
  database.close();
  return queue;
}

describe.skipIf(lacks("python"))("a JSON payload that another program wrote", () => {
  test.each([
    ["with a byte order mark", "x'efbbbf7b7d'", {}],
    ["with the sign that stands for what is not UTF-8", "CAST('\"a\uFFFDb\"' AS BLOB)", "a\uFFFDb"],
    ["as a TEXT", '\'{"text": "ä€😀"}\'', { text: "ä€😀" }],
    ["of a number", "17", 17],
  ])("%s is read as it is meant", async (_, sql, data) => {
    await using queue = await withPayload(sql);
    expect((await queue.getNowait()).data).toEqual(data);
  });

  test.each([
    ["that is not UTF-8", "x'22ff22'"],
    ["with a byte that ends texts elsewhere", "x'7b7d007d'"],
    ["that is empty", "x''"],
  ])("%s becomes a dead letter", async (_, sql) => {
    await using queue = await withPayload(sql);
    await expect(queue.getNowait()).rejects.toMatchObject({ code: "EMPTY" });
    expect(await queue.stats()).toMatchObject({ failed: 1 });
  });
});

describe("a storage whose payloads are text", () => {
  test("hands out text, but bytes where they are long, or where text would not be the same", async () => {
    const storage = openStorage(tempLocation(), { queue: "q", fsync: undefined, text: true });
    try {
      const long = "x".repeat(64 * 1024);
      const broken = new Uint8Array([0x22, 0xff, 0x22]);
      for (const payload of ["short", "ä€😀", "", long, "\uFEFFmarked"]) await put(storage, payload);
      await storage.put([{ payload: broken, jobId: undefined, delayMs: 0, maxAttempts: 4 }], {});
      const claimed = await storage.claim({ limit: 10, leaseMs: LEASE_MS });
      const [short, other, empty, ...bytes] = claimed.map(({ payload }) => payload);
      expect([short, other, empty]).toEqual(["short", "ä€😀", ""]);
      const expected = [Buffer.from(long), Buffer.from("\uFEFFmarked"), Buffer.from(broken)];
      expect(bytes.map((payload) => Buffer.from(payload).equals(expected.shift() as Buffer))).toEqual([
        true,
        true,
        true,
      ]);
    } finally {
      await storage.close();
    }
  });
});
