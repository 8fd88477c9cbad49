// What it costs in memory to put without awaiting.
import { withDirectory } from "./support/directory.mjs";
import { tellChecked, tellValue } from "./support/figures.mjs";
import { megabytes, number, time } from "./support/format.mjs";
import { ask } from "./support/program.mjs";
import { sized } from "./support/size.mjs";

const flood = (input) => withDirectory((directory) => ask("flood", { directory, ...input }));

const tellMemory = (what, { before, peak, tookMs }) => {
  const detail = `${megabytes(before)} before, ${megabytes(peak)} at the peak; all committed after ${time(tookMs)}`;
  tellValue(`${what}: memory`, undefined, peak - before, megabytes, detail);
};

const PUTS = sized(100_000, 1_000);
const many = await flood({ puts: PUTS, textBytes: 50 });
tellMemory(`${number(PUTS)} puts that nobody awaits`, many);
tellChecked("each of them is delivered", "exactly once", `${number(many.accepted)} jobs, by their ids`);

const refused = await flood({ puts: Number.MAX_SAFE_INTEGER, textBytes: sized(64, 1024) * 1024 });
tellMemory("puts that nobody awaits, until the queue refuses", refused);
const calls = `${number(refused.accepted)} jobs, by their ids; the others were refused with BUSY`;
tellChecked("each that was accepted is delivered", "exactly once", calls);
