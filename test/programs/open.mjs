// Opens one queue after another at the moment that the test tells, and puts a job into each.
import { setTimeout as sleep } from "node:timers/promises";
import { SimpleQueue } from "localqueue";
import { say, told } from "./lines.mjs";

say("ready");
for await (const { location, at } of told()) {
  await sleep(at - Date.now());
  const queue = new SimpleQueue(location);
  try {
    say("opened", await queue.put("hello"));
  } catch (error) {
    say("opened", { error: `${error.code}: ${error.message}` });
  }
  await queue.close();
}
