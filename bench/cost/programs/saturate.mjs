// Puts as many jobs as the engine takes, in batches, until it is dismissed.
import { SimpleQueue } from "../../../dist/index.js";
import { payload } from "../support/payload.mjs";
import { inLanes } from "../support/queue.mjs";

const { directory, batch } = JSON.parse(process.argv[2]);
const queue = new SimpleQueue(directory);
await queue.stats();
const items = Array.from({ length: batch }, () => payload);
let more = true;
process.once("disconnect", () => {
  more = false;
});
process.send("open");
await inLanes(
  3,
  () => more,
  async () => {
    await queue.putMany(items);
  },
);
await queue.close();
