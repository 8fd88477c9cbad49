// Puts and claims one large payload, in a process of its own: the peak of its memory is nobody else's.
import { SimpleQueue } from "../../../dist/index.js";
import { peakRss } from "../support/memory.mjs";
import { passThrough } from "../support/payload.mjs";

const { directory, name, size } = JSON.parse(process.argv[2]);
const asBytes = name === "bytes";
const queue = new SimpleQueue(directory, asBytes ? { serializer: passThrough } : {});
await queue.stats();
const bytes = Buffer.alloc(size, "x");
const data = asBytes ? bytes : bytes.toString("latin1");
globalThis.gc();
const before = process.memoryUsage.rss();

await queue.put(data);
const job = await queue.getNowait();
process.send({ before, peak: peakRss() });
await job.ack();
await queue.close();
