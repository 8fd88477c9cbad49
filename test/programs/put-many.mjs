// Puts batches of 5,000 jobs until it is killed.
import { SimpleQueue } from "localqueue";
import { input, say } from "./lines.mjs";

const queue = new SimpleQueue(input.location);
for (let n = 1; ; n++) {
  const batch = `${input.name}-${n}`;
  say("putting", { batch });
  await queue.putMany(Array.from({ length: 5_000 }, () => batch));
  say("put", { batch });
}
