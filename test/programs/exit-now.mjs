// Puts without waiting, says what was acknowledged, and exits in the middle of it.
import { SimpleQueue } from "localqueue";
import { input, say } from "./lines.mjs";

const queue = new SimpleQueue(input.location);
process.on("unhandledRejection", (reason) => say("unhandled", { reason: String(reason) }));
let acknowledged = 0;
for (let n = 0; n < input.exitAfter + 3_000; n++) {
  queue.put(n).then(({ id }) => {
    say("put", { id, n });
    if (++acknowledged === input.exitAfter) process.exit(0);
  });
}
