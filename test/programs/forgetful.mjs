// Uses a queue and does not close it.
import { SimpleQueue } from "localqueue";
import { input, say } from "./lines.mjs";

process.on("unhandledRejection", (reason) => say("unhandled", { reason: String(reason) }));
const queue = new SimpleQueue(input.location);
say("put", await queue.put("awaited"));
const job = await queue.get();
await job.ack();
say("acked", { id: job.id });
if (input.lastPut) queue.put("not awaited").then(({ id }) => say("put", { id }));
