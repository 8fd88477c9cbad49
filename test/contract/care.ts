import { rmSync } from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { BackupProgress, IntegrityProgress } from "../../dist/storage/care.js";
import type { Backend } from "../support/backend.ts";
import { lacks } from "../support/capabilities.ts";
import { rejection } from "../support/storage.ts";
import { tempDirectory } from "../support/temp.ts";
import { expectRightCounts, openBench, put, putMany, take, takeOne } from "./jobs.ts";

/** Looking after all that is stored. */
export function careContract(backend: Backend): void {
  describe("taking care of what is stored", () => {
    test("a check of a healthy database finds nothing, whatever its jobs are doing", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await putMany(storage, 10);
      const [first, second] = await take(storage, 3);
      if (first !== undefined) await storage.settle(first, { event: "ack" });
      const failure = { event: "fail", lastError: "no", reason: "rejected", category: undefined } as const;
      if (second !== undefined) await storage.settle(second, failure);
      const told: IntegrityProgress[] = [];
      for (const mode of ["full", "quick"] as const) {
        const onProgress = (progress: IntegrityProgress): void => void told.push(progress);
        const report = await storage.checkIntegrity({ mode, maxErrors: 5, onProgress });
        expect(report).toMatchObject({ schemaVersion: 1, mode, maxErrors: 5, ok: true, messages: ["ok"] });
      }
      expect(told.length).toBeGreaterThan(0);
      expect(told.every(({ done, total }) => done >= 0 && done <= total)).toBe(true);
      await expectRightCounts(bench, storage, "default");
    });

    test("a vacuum keeps every job as it is", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      const ids = await putMany(storage, 5);
      await put(bench.storage("other"), "in another queue", { delayMs: 60_000 });
      await storage.settle(await takeOne(storage), { event: "ack" });
      const before = await Promise.all(ids.map((id) => bench.exact(id)));
      await storage.vacuum();
      expect(await Promise.all(ids.map((id) => bench.exact(id)))).toEqual(before);
      await expectRightCounts(bench, storage, "default");
      expect(await put(storage)).toBeGreaterThan(Math.max(...ids));
    });

    test("a vacuum is refused while a job of another queue is held, and changes nothing", async () => {
      const bench = await openBench(backend);
      const [storage, other] = [bench.storage(), bench.storage("other")];
      await put(other);
      const delivery = await takeOne(other);
      expect(await rejection(storage.vacuum())).toMatchObject({ code: "BUSY", outcome: "failed" });
      expect(await other.settle(delivery, { event: "ack" })).toBe("acked");
      await storage.vacuum();
    });

    test.skipIf(lacks("backup"))("a backup is verified, and leaves what it copies alone", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await putMany(storage, 5);
      const delivery = await takeOne(storage);
      const before = await bench.jobs();
      const told: BackupProgress[] = [];
      const destination = path.join(tempDirectory(), "backup");
      onTestFinished(() => rmSync(destination, { recursive: true, force: true }));
      const onProgress = (progress: BackupProgress): void => void told.push(progress);
      const report = await storage.backup({ destination, onProgress });
      expect(report).toMatchObject({ destination, verified: true, verificationMessages: ["ok"] });
      expect(told.map(({ phase }) => phase)).toEqual(expect.arrayContaining(["copying", "verifying"]));
      expect(await bench.jobs()).toEqual(before);
      expect(await storage.settle(delivery, { event: "ack" })).toBe("acked");
      expect(await rejection(storage.backup({ destination }))).toMatchObject({ code: "BAD_LOCATION" });
    });

    test("a storage that was closed does none of it", async () => {
      const bench = await openBench(backend);
      const storage = bench.storage();
      await put(storage);
      await storage.close();
      const check = storage.checkIntegrity({ mode: "full", maxErrors: 1 });
      const destination = path.join(tempDirectory(), "backup");
      for (const refused of [check, storage.vacuum(), storage.backup({ destination })]) {
        expect(await rejection(refused)).toMatchObject({ code: "CLOSED" });
      }
    });
  });
}
