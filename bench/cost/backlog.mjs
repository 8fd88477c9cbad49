// What a claim costs in a file with millions of other jobs, beside one in a file without.
import path from "node:path";
import { performance } from "node:perf_hooks";
import { loadDriver } from "../../dist/storage/sqlite/driver.js";
import { SQL } from "../../dist/storage/sqlite/statements.js";
import { withDirectory } from "./support/directory.mjs";
import { assertStats } from "./support/exact.mjs";
import { tellChecked, tellRatio } from "./support/figures.mjs";
import { number, time } from "./support/format.mjs";
import { Limit } from "./support/limit.mjs";
import { payload, payloadBytes } from "./support/payload.mjs";
import { withQueue } from "./support/queue.mjs";
import { alternate } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const EACH = sized(1_000_000, 2_000);
const CLAIMS = sized(1_000, 50);

/** Ready, delayed and acknowledged jobs take turns, as in a file that is in use; the delays end in the coming days. */
const FILL = `WITH RECURSIVE numbers (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
  INSERT INTO messages (queue, payload, status, attempts, max_attempts, available_at, created_at, updated_at)
  SELECT 'default', CAST(:payload AS BLOB), iif(n % 3 = 2, 2, 0), iif(n % 3 = 2, 1, 0), 4,
    iif(n % 3 = 1, :now + 86400000 + n * 7919 % 86400000, :now), :now, :now FROM numbers`;

/** Through SQL: millions of calls would take minutes, and the rows would be the same. */
function fill(directory) {
  const db = loadDriver().open(path.join(directory, "localqueue.db"));
  const now = Date.now();
  db.exec("BEGIN IMMEDIATE");
  db.prepare(FILL).run({ rows: 3 * EACH, payload: payloadBytes, now });
  db.prepare(SQL.count).run({ queue: "default", ready: 2 * EACH, processing: 0, acked: EACH, failed: 0, now });
  db.exec("COMMIT");
  db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").all();
  const counted = db.prepare("SELECT sum(status = 0) AS ready, sum(status = 2) AS acked FROM messages").get();
  if (counted.ready !== 2 * EACH || counted.acked !== EACH) throw new Error("The backlog is not what it should be.");
  db.close();
}

/**
 * What a claim takes, in milliseconds, on average. A job is put before each, so that the small file, too, has one to
 * deliver; that and the acknowledgement are outside the clock.
 */
async function timeClaims(queue, claim) {
  let took = 0;
  for (let i = 0; i < CLAIMS; i++) {
    await queue.put(payload);
    const start = performance.now();
    const job = await claim(queue);
    took += performance.now() - start;
    await job.ack();
  }
  return took / CLAIMS;
}

function timeStatements(file) {
  let took = 0;
  for (let i = 0; i < CLAIMS; i++) took += file.timeOfClaim(payloadBytes);
  return took / CLAIMS;
}

const CLAIM_CALLS = {
  "getNowait()": (queue) => queue.getNowait(),
  "getMany(1)": async (queue) => (await queue.getMany(1))[0],
};

await withDirectory((small) =>
  withDirectory(async (large) => {
    for (const directory of [small, large]) await withQueue(directory, {}, (queue) => queue.stats());
    fill(large);
    let acked = 0;
    await withQueue(small, {}, (alone) =>
      withQueue(large, {}, async (among) => {
        for (const [name, claim] of Object.entries(CLAIM_CALLS)) {
          const rounds = await alternate(
            () => timeClaims(among, claim),
            () => timeClaims(alone, claim),
          );
          acked += (rounds.length + 1) * CLAIMS;
          tellRatio(`${name} with ${number(3 * EACH)} others: time`, { atMost: 1.3 }, rounds, time, "without");
        }
        await assertStats(alone, { acked });
        await assertStats(among, { ready: 2 * EACH, acked: EACH + acked });
      }),
    );
    const [alone, among] = [new Limit(small), new Limit(large)];
    const rounds = await alternate(
      () => timeStatements(among),
      () => timeStatements(alone),
    );
    alone.close();
    among.close();
    tellRatio("the claim's SQL statement alone: time", undefined, rounds, time, "without");
    tellChecked("the counts are right", "exactly", "after all claims, in both files");
  }),
);
