// Purges what is older than a second, again and again, and tells how much that was.
import { SimpleQueue } from "localqueue";
import { input, say } from "./lines.mjs";

const queue = new SimpleQueue(input.location);
await queue.stats();
say("ready");
for (;;) {
  const purged = await queue.purge({ olderThanMs: 1000, includeFailed: true });
  say("purged", { purged });
  if (purged === 0) break;
}
await queue.close();
