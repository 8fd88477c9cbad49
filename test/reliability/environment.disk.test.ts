import path from "node:path";
import { SimpleQueue, type StorageError } from "localqueue";
import { expect, test } from "vitest";
import { faultsOf } from "../support/inspect.ts";
import { RemoteQueue } from "../support/remote-queue.ts";
import { SmallDisk } from "../support/small-disk.ts";
import { Layer } from "./support/size.ts";

const REFUSALS = ["READ_ONLY", "IO"];

async function round(layer: Layer): Promise<void> {
  const disk = new SmallDisk("ext4", 32);
  const location = path.join(disk.directory, "queue");
  const remote = new RemoteQueue(location, { fsync: true });
  const confirmed: number[] = [];
  for (let n = 0; n < 20; n++) {
    await remote.call("put", n);
    confirmed.push(n);
  }
  const held = await remote.get();
  layer.planned();
  disk.shutDown();
  layer.delivered();
  const refused = await remote.call("put", "too late").catch((error: StorageError) => error);
  expect(REFUSALS).toContain(Reflect.get(refused as object, "code"));
  await expect(remote.call("ack", held)).rejects.toSatisfy(({ code }) => REFUSALS.includes(code));
  // The process goes on: it can be told to end, and ends.
  await remote.end(60_000);
  disk.repair();
  await using queue = new SimpleQueue(location);
  const { ready, processing, acked } = await queue.stats();
  expect([ready, processing, acked]).toEqual([confirmed.length - 1, 1, 0]);
  const left = await queue.getMany(100);
  expect(left.map(({ data }) => data)).toEqual(confirmed.slice(1));
  expect(faultsOf(location)).toEqual([]);
}

test("a disk that stops taking writes is told as such, loses nothing that was confirmed, and is used again once repaired", async () => {
  const layer = new Layer({ name: "environment.disk", rounds: 2 });
  for (const seed of layer.seeds()) await layer.round(seed, () => round(layer));
  layer.done();
});
