// The producer's process: puts every payload once per round, and exits. usage: producer.mjs <directory>
import { SimpleQueue } from "localqueue";
import { jobIdOf, payloads, ROUNDS } from "./payloads.mjs";
import { QUEUE } from "./settings.mjs";

process.on("SIGINT", () => {}); // Ctrl-C reaches every process; demo.mjs ends them all

const [, , directory] = process.argv;
const queue = new SimpleQueue(directory, QUEUE);

/** Puts that are under way together share a transaction; each resolves once it is committed. */
async function putAll(round) {
  const results = await Promise.all(
    payloads.map((webhook) => {
      const { event, payload } = webhook;
      return queue.put({ event, payload }, { jobId: jobIdOf(webhook, round) });
    }),
  );
  return results.filter(({ inserted }) => inserted).length;
}

let inserted = 0;
for (let round = 1; round <= ROUNDS; round++) inserted += await putAll(round);

// GitHub sends a webhook again when it gets no answer in time. The `jobId` is known by then: nothing is added.
const insertedAgain = await putAll(1);

await queue.close();
process.send({ inserted, again: payloads.length, insertedAgain });
