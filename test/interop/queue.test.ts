import { expect, test } from "vitest";
import { openQueue } from "../support/queue.ts";
import { tempDirectory } from "../support/temp.ts";
import { PythonQueue } from "./support/python.ts";

test("a job that Python put is handled here", async () => {
  const directory = tempDirectory();
  const python = new PythonQueue(directory);
  const id = await python.put({ to: "hello@example.com" });
  const queue = openQueue({ directory });
  const job = await queue.get();
  expect(job).toMatchObject({ id, data: { to: "hello@example.com" }, attempt: 1 });
  await queue.ack(job);
  expect(await python.stats()).toEqual({ ready: 0, processing: 0, acked: 1, failed: 0 });
});
