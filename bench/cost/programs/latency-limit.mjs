// The limit of a consumer: on the event loop, woken by the watch on the directory. Notes when each job is there.
import fs from "node:fs";
import { Limit } from "../support/limit.mjs";

const { directory, warmUp, jobs } = JSON.parse(process.argv[2]);
const limit = new Limit(directory);
const started = [];

function note(payload) {
  JSON.parse(payload);
  started.push({ at: process.hrtime.bigint() });
}

const watcher = fs.watch(directory, () => {
  while (limit.workOff(note)) {
    if (started.length === warmUp) process.send("warm");
    if (started.length === jobs) process.send(started);
  }
});
process.once("disconnect", () => {
  watcher.close();
  limit.close();
});
process.send("open");
