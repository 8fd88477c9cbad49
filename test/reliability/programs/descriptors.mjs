// Uses a queue while the process has no file descriptors left, and opens and closes one very often.
import fs from "node:fs";
import { SimpleQueue } from "localqueue";
import { input, say } from "../../programs/lines.mjs";

const taken = [];
function takeAll() {
  try {
    for (;;) taken.push(fs.openSync("/dev/null", "r"));
  } catch (error) {
    say("exhausted", { code: error.code });
  }
}
const giveBack = () => taken.splice(0).forEach(fs.closeSync);
const open = () => new SimpleQueue(input.location);
const told = (promise) =>
  promise.then(
    () => "done",
    ({ name, code }) => `${name} ${code}`,
  );

const early = open();
await early.put("before");
takeAll();
const late = open();
say("without", { early: await told(early.put("open already")), late: await told(late.put("not open yet")) });
giveBack();
say("with", { early: await told(early.put("after")), late: await told(late.put("after")) });
await Promise.all([early.close(), late.close()]);

const descriptors = () => fs.readdirSync("/proc/self/fd").length;
const before = descriptors();
for (let i = 0; i < input.opens; i++) {
  const queue = open();
  await queue.put(i);
  await queue.close();
}
say("opened", { before, after: descriptors() });
