// How long a Python client waits for its turn beside engines of ours that write all the time.
import { withDirectory } from "./support/directory.mjs";
import { tellValue } from "./support/figures.mjs";
import { number, time } from "./support/format.mjs";
import { Program } from "./support/program.mjs";
import { runPython } from "./support/python.mjs";
import { withQueue } from "./support/queue.mjs";
import { sized } from "./support/size.mjs";

const SECONDS = sized(8, 0.3);
const BATCH = sized(1000, 10);

for (const engines of [0, 1, 4]) {
  await withDirectory(async (directory) => {
    await withQueue(directory, {}, (queue) => queue.stats());
    const programs = Array.from({ length: engines }, () => new Program("saturate", { directory, batch: BATCH }));
    for (const program of programs) await program.hear();
    let puts;
    for await (const answer of runPython("python-put", directory, SECONDS)) puts = answer;
    for (const program of programs) await program.dismiss();
    tellValue(
      `a put of Python beside ${engines} busy engines of ours: the longest`,
      undefined,
      puts.longestMs,
      time,
      `${number(puts.puts)} puts in ${SECONDS} s, ${puts.failed} failed, the median ${time(puts.medianMs)}`,
    );
  });
}
