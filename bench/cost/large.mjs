// What a payload of 50 MB costs, as bytes and as one JSON string.
import { createHash, randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import { delaysDuring } from "./support/delays.mjs";
import { withDirectory } from "./support/directory.mjs";
import { tellChecked, tellRatio, tellValue } from "./support/figures.mjs";
import { megabytes, time } from "./support/format.mjs";
import { withLimit } from "./support/limit.mjs";
import { passThrough } from "./support/payload.mjs";
import { ask } from "./support/program.mjs";
import { withNewQueue } from "./support/queue.mjs";
import { alternate, median, pick } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const SIZE = sized(50, 1) * 1024 * 1024;

const hashOf = (data) => createHash("sha256").update(data).digest("hex");

async function timed(work) {
  const start = performance.now();
  const result = await work();
  return [performance.now() - start, result];
}

function assertSame(expected, found) {
  if (hashOf(expected) !== hashOf(found)) throw new Error("A large payload did not come back as it was put.");
}

/** The engine's checkpoint follows its answer; here it is in no figure, neither of the queue nor of the limit. */
function own(data, serializer) {
  return withNewQueue({ serializer }, async (queue) => {
    const result = {};
    let job;
    const { max } = await delaysDuring(async () => {
      [result.put] = await timed(() => queue.put(data));
      await queue.stats(); // answered after the checkpoint
      [result.claim, job] = await timed(() => queue.getNowait());
    });
    assertSame(data, job.data);
    await job.ack();
    return { ...result, longest: max };
  });
}

function limit(data, { encode, decode }) {
  return withLimit({ checkpoints: false }, async (file) => {
    let found;
    const [put] = await timed(() => file.put(encode(data)));
    file.checkpoint();
    const [claim] = await timed(() =>
      file.turn(1, (bytes) => {
        found = decode(bytes);
      }),
    );
    assertSame(data, found);
    const [encoding, encoded] = await timed(() => encode(data));
    const [decoding] = await timed(() => decode(encoded));
    // Nobody who encodes and decodes on the event loop can do with less.
    return { put, claim, longest: Math.max(encoding, decoding) };
  });
}

const bare = { encode: (text) => Buffer.from(JSON.stringify(text)), decode: (bytes) => JSON.parse(bytes.toString()) };

for (const [name, data, serializer, coding] of [
  ["bytes", randomBytes(SIZE), passThrough, passThrough],
  ["text", randomBytes((SIZE / 4) * 3).toString("base64"), undefined, bare],
]) {
  const what = `${megabytes(SIZE)} of ${name}`;
  const rounds = await alternate(
    () => own(data, serializer),
    () => limit(data, coding),
  );
  tellRatio(`${what}, put: time`, undefined, pick(rounds, "put"), time);
  tellRatio(`${what}, claim: time`, undefined, pick(rounds, "claim"), time);
  const longest = pick(rounds, "longest");
  const bound = time(median(longest.map((round) => round.limit)));
  tellValue(
    `${what}: longest event-loop delay`,
    undefined,
    Math.max(...longest.map((round) => round.own)),
    time,
    `of all rounds; encoding or decoding alone takes ${bound}`,
  );
  const { before, peak } = await withDirectory((directory) =>
    ask("large-payload", { directory, name, size: SIZE }, ["--expose-gc"]),
  );
  const detail = `${megabytes(before)} before, payload included; ${megabytes(peak)} at the peak`;
  tellValue(`${what}: memory for put and claim`, undefined, peak - before, megabytes, detail);
}
tellChecked("large payloads come back", "byte for byte", "by their SHA-256, after each round");
