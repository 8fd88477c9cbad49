// Opens, uses and closes a queue again and again.
import { SimpleQueue } from "localqueue";
import { input, say } from "./lines.mjs";

for (let n = 0; n < input.times; n++) {
  const queue = new SimpleQueue(input.location);
  await queue.put(`${input.name}-${n}`);
  const job = await queue.get();
  await job.ack();
  say("done", { data: job.data });
  await queue.close();
}
