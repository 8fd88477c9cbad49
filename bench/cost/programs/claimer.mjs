// Claims and acknowledges jobs one after the other, with pauses, and tells every now and then how long the claims took.
import { SimpleQueue } from "../../../dist/index.js";
import { claimInTurns } from "../support/claims.mjs";

const { directory } = JSON.parse(process.argv[2]);
const queue = new SimpleQueue(directory);
let over = false;
process.once("disconnect", () => {
  over = true;
});
await claimInTurns(
  queue,
  () => !over,
  (delays) => process.connected && process.send(delays),
);
await queue.close();
