import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { SimpleQueue, Worker } from "localqueue";
import { postgres } from "localqueue/postgres";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { tempLocation } from "./support/location.ts";
import { Script } from "./support/script.ts";
import { tempDirectory } from "./support/temp.ts";

test("a package that was bundled without the thread that renews leases says so, and claims nothing", async () => {
  const dist = path.join(tempDirectory(), "dist");
  fs.cpSync("dist", dist, { recursive: true });
  fs.rmSync(path.join(dist, "storage/postgres/lease-thread.js"));
  // Where the copy finds `pg`.
  fs.symlinkSync(path.resolve("node_modules"), path.join(dist, "..", "node_modules"));
  const program = `
    const { SimpleQueue, Worker } = await import(${JSON.stringify(pathToFileURL(path.join(dist, "index.js")).href)});
    const queue = new SimpleQueue(directory);
    await queue.put("a job");
    const worker = new Worker(queue, () => print("handled"));
    await worker.run().catch(({ code, message }) => print({ code, message }));
    print(await queue.stats());
    await queue.close();`;
  const script = new Script(tempLocation(), program, { dist: pathToFileURL(`${dist}/`) });
  expect(await script.ended()).toMatchObject({ code: 0, signal: null });
  expect(script.printed).toEqual([
    { code: "BAD_LOCATION", message: expect.stringContaining("lease-thread.js") },
    expect.objectContaining({ ready: 1, processing: 0 }),
  ]);
});

/** Connects to the server whatever it is told: an address that only this thread knows. */
class OwnClient extends pg.Client {
  constructor() {
    super({ connectionString: process.env["TEST_POSTGRES_URL"] });
  }
}

test("connections that only the program's own pool can make are no use for leases: a worker says so, and claims nothing", async () => {
  const { searchParams } = new URL(tempLocation());
  const pool = new pg.Pool({ host: "127.0.0.1", port: 1, Client: OwnClient as unknown as typeof pg.Client, max: 3 });
  onTestFinished(() => pool.end());
  const location = postgres({ pool, schema: searchParams.get("schema") as string });
  await using queue = new SimpleQueue(location);
  await queue.put("a job");
  const handled: unknown[] = [];
  await using worker = new Worker(queue, (job) => void handled.push(job.data));
  const told = new Promise((resolve) => worker.on("error", resolve));
  const ended = worker.run();
  const message = expect.stringContaining("This is the connection that renews leases.");
  expect(await told).toMatchObject({ error: { code: "CONNECTION", message } });
  await worker.stop();
  await ended;
  expect(handled).toEqual([]);
  expect(await queue.stats()).toMatchObject({ ready: 1, processing: 0 });
}, 60_000);
