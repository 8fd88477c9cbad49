// Dispatches the event that it is told of, to the queues that it is told.
import { openStorage } from "../../dist/storage/location.js";
import { input, say, told } from "./lines.mjs";

const storage = openStorage(input.location, { queue: "bus", fsync: undefined });
await storage.stats();
say("ready");
for await (const event of told()) {
  const outcome = await storage.dispatch([event]).then(
    ([outcomes]) => ({ outcomes }),
    ({ code }) => ({ code }),
  );
  say("dispatched", outcome);
}
await storage.close();
