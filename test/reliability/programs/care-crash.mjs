// Makes a backup of a file, or vacuums it, but is killed right before the n-th thing that it does to files.
import fs from "node:fs";
import { backup } from "../../../dist/storage/sqlite/backup.js";
import { SIGNALS } from "../../../dist/storage/sqlite/protocol.js";
import { SideContext } from "../../../dist/storage/sqlite/side-context.js";
import { vacuum } from "../../../dist/storage/sqlite/vacuum.js";
import { input, say } from "../../programs/lines.mjs";
import { watchedDriver } from "../../programs/watched-driver.mjs";

let done = 0;
function dieInTime() {
  if (++done === input.killAt) process.kill(process.pid, "SIGKILL");
}

for (const name of ["mkdirSync", "openSync", "fsyncSync", "renameSync", "rmSync", "rmdirSync"]) {
  const real = fs[name];
  fs[name] = (...args) => {
    dieInTime();
    return real(...args);
  };
}

const context = new SideContext(input.location, new Int32Array(SIGNALS), dieInTime);
context.driver = watchedDriver((_, execute) => {
  dieInTime();
  return execute();
});
if (input.task === "vacuum") await vacuum(undefined, context);
else await backup({ destination: input.target, directory: input.target }, context);
context.close();
say("finished");
