import { randomBytes } from "node:crypto";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { lockDatabase } from "./support/database.ts";
import { readRows } from "./support/engine-harness.ts";
import { claimAll, entry, open, rejection, textOf } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

describe("what is passed to put", () => {
  test.each([
    ["small", 100],
    ["large", 200 * KIB],
  ])("is stored as it was at the call, whatever happens to a %s buffer afterwards", async (_, size) => {
    const storage = open(tempDirectory());
    const buffer = Buffer.alloc(size, "a");
    const put = storage.put([entry(buffer)], {});
    buffer.fill("b");
    await put;
    buffer.fill("c");
    const [delivery] = await claimAll(storage);
    expect(Buffer.from(delivery?.payload ?? []).equals(Buffer.alloc(size, "a"))).toBe(true);
  });

  test("is stored without its neighbours in the memory that it shares", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    const secret = Buffer.from("a secret beside it");
    const pooled = Buffer.from("pooled");
    expect(pooled.buffer).toBe(secret.buffer);
    const view = new Uint8Array(randomBytes(300 * KIB).fill(7).buffer, 1000, 70 * KIB);
    await storage.put([entry(pooled), entry(view)], {});
    const rows = readRows(path.join(directory, "localqueue.db"), "SELECT payload FROM messages ORDER BY id");
    expect(rows.map(({ payload }) => (payload as Uint8Array).length)).toEqual([6, 70 * KIB]);
    const [first, second] = await claimAll(storage);
    expect(Buffer.from(first?.payload ?? []).toString()).toBe("pooled");
    expect(Buffer.from(second?.payload ?? []).equals(Buffer.alloc(70 * KIB, 7))).toBe(true);
    for (const { payload } of [first, second].filter((delivery) => delivery !== undefined)) {
      expect(Buffer.from((payload as Uint8Array).buffer).includes("secret")).toBe(false);
    }
  });

  test("is still the caller's: buffers are copied, not taken away", async () => {
    const storage = open(tempDirectory());
    const small = new Uint8Array(10).fill(1);
    const large = new Uint8Array(2 * MIB).fill(2);
    await storage.put([entry(small), entry(large)], {});
    expect([small.length, large.length]).toEqual([10, 2 * MIB]);
  });

  const sizes = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB - 1, MIB, MIB + 1];

  test.each(sizes)("comes back byte for byte: %i bytes", async (size) => {
    const storage = open(tempDirectory());
    const bytes = randomBytes(size);
    await Promise.all([
      storage.put([entry("before")], {}),
      storage.put([entry(bytes)], {}),
      storage.put([entry("after"), entry(bytes), entry("last")], {}),
    ]);
    const deliveries = await claimAll(storage);
    expect(deliveries.map(({ payload }) => payload.length)).toEqual([6, size, 5, size, 4]);
    for (const index of [1, 3]) {
      expect(Buffer.from(deliveries[index]?.payload ?? []).equals(bytes)).toBe(true);
    }
    expect([0, 2, 4].map((index) => Buffer.from(deliveries[index]?.payload ?? []).toString())).toEqual([
      "before",
      "after",
      "last",
    ]);
  });

  test.each([2, 21_845, 64 * KIB, MIB + 1])(
    "comes back letter for letter: %i characters of several bytes each",
    async (size) => {
      const storage = open(tempDirectory());
      const text = `😀${"é✓".repeat(size / 2).slice(0, size - 2)}`;
      await Promise.all(["before", text, "after"].map((payload) => storage.put([entry(payload)], {})));
      const deliveries = await claimAll(storage);
      expect(deliveries.map((delivery) => textOf(delivery) === text)).toEqual([false, true, false]);
      expect(deliveries.map(({ payload }) => payload.length)).toEqual([6, Buffer.byteLength(text), 5]);
    },
  );

  test("comes back when it is 50 MB", async () => {
    const storage = open(tempDirectory());
    const bytes = Buffer.alloc(50_000_000, randomBytes(1013));
    await storage.put([entry(bytes)], {});
    const [delivery] = await claimAll(storage);
    expect(Buffer.from(delivery?.payload ?? []).equals(bytes)).toBe(true);
  });
});

describe("many puts that nobody awaits one by one", () => {
  test("100,000 of them keep their order and need little memory", async () => {
    const storage = open(tempDirectory());
    await storage.put([entry("first")], {});
    const before = process.memoryUsage.rss();
    let most = before;
    const watch = setInterval(() => {
      most = Math.max(most, process.memoryUsage.rss());
    }, 10);
    const payload = "x".repeat(100);
    const puts = Array.from({ length: 100_000 }, () => storage.put([entry(payload)], {}));
    const ids = (await Promise.all(puts)).map(([enqueued]) => enqueued?.id);
    clearInterval(watch);
    expect(ids).toEqual(Array.from({ length: 100_000 }, (_, i) => i + 2));
    expect(await storage.stats()).toMatchObject({ ready: 100_001 });
    expect((most - before) / MIB).toBeLessThan(600);
  });

  test("puts of all sizes keep their order", async () => {
    const storage = open(tempDirectory());
    const sizes = Array.from({ length: 300 }, (_, i) => [20, 3000, 70 * KIB, 400 * KIB, 1][i % 5] as number);
    const ids = await Promise.all(
      sizes.map(async (size, i) => (await storage.put([entry(Buffer.alloc(size, i))], {}))[0]?.id),
    );
    expect(ids).toEqual(sizes.map((_, i) => i + 1));
    const deliveries = await claimAll(storage);
    expect(deliveries.map(({ payload }) => [payload.length, payload[0]])).toEqual(
      sizes.map((size, i) => [size, i % 256]),
    );
  });

  test("are refused beyond 256 MiB, and accepted again when earlier ones are done", async () => {
    const directory = tempDirectory();
    const storage = open(directory);
    await storage.put([entry("first")], {});
    const unlock = lockDatabase(directory);
    const large = Buffer.alloc(20 * MIB);
    const accepted = Array.from({ length: 12 }, () => rejection(storage.put([entry(large)], { timeoutMs: 400 })));
    const started = performance.now();
    const refused = await rejection(storage.put([entry(large)], {}));
    expect(refused).toMatchObject({ name: "StorageError", code: "BUSY", outcome: "failed" });
    expect(performance.now() - started).toBeLessThan(350);
    const small = storage.put([entry("there is room for a small one")], {});
    for (const error of await Promise.all(accepted)) expect(error).toMatchObject({ code: "BUSY", outcome: "failed" });
    unlock();
    await small;
    await storage.put([entry(large)], {});
    expect(await storage.stats()).toMatchObject({ ready: 3 });
  });
});
