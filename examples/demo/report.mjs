import { digest, jobIdOf, payloads, ROUNDS } from "./payloads.mjs";
import { number, tell } from "./story.mjs";

const JOBS = payloads.length * ROUNDS;

/**
 * Compares what the workers wrote down with what was put, tells the outcome, and returns what does not add up.
 * `entries` are the lines of all ledgers, `held` the deliveries in the hands of the worker `victim` when it was killed.
 */
export function report({ entries, stats, produced, victim, held, killedAt }) {
  const jobs = groupBy(entries, ({ jobId }) => jobId);
  const accident = { victim, killedAt, held: new Set(held.map(({ id }) => id)) };
  return [...reportPayloads(jobs, entries, produced), ...reportRepeats(jobs, accident), ...reportStats(stats)];
}

function reportPayloads(jobs, entries, { inserted, insertedAgain }) {
  const problems = [];
  for (const webhook of payloads) {
    const expected = digest(webhook.payload);
    for (let round = 1; round <= ROUNDS; round++) {
      const jobId = jobIdOf(webhook, round);
      const deliveries = jobs.get(jobId) ?? [];
      if (deliveries.length === 0) problems.push(`${jobId} was never handled`);
      if (deliveries.some(({ digest }) => digest !== expected)) problems.push(`${jobId} did not arrive as it was put`);
    }
  }
  if (inserted !== JOBS) problems.push(`the producer added ${inserted} jobs`);
  if (insertedAgain !== 0) problems.push(`${insertedAgain} jobs were added twice`);
  if (jobs.size > JOBS) problems.push(`${jobs.size - JOBS} jobs came from nowhere`);
  if (problems.length === 0) {
    tell(
      `Each of the ${payloads.length} payloads was handled ${ROUNDS} times: ${number(jobs.size)} jobs, every digest right.`,
    );
  }
  const firsts = [...jobs.values()].map(([first]) => first);
  tell(`  events      ${counts(firsts, ({ event }) => event, 4)}`);
  tell(`  deliveries  ${counts(entries, ({ worker }) => `worker ${worker}`)}`);
  return problems;
}

/** Only what the killed worker held may have been delivered twice, and all of it must have been. */
function reportRepeats(jobs, { victim, held, killedAt }) {
  const problems = [];
  const repeated = [...jobs.values()].filter(({ length }) => length > 1).sort(([a], [b]) => a.id - b.id);
  tell(
    `${repeated.length} jobs were handled twice: worker ${victim} had done them, but was killed before it could say so.`,
  );
  for (const deliveries of repeated) {
    const [first, second, ...others] = deliveries.sort((a, b) => a.attempt - b.attempt);
    const attempts = deliveries.map(({ attempt, worker }) => `attempt ${attempt} by worker ${worker}`).join(", ");
    const seconds = ((second.at - killedAt) / 1_000).toFixed(1);
    tell(`  job ${first.id} (${first.jobId}): ${attempts}, ${seconds} s after the kill`);
    const explained = held.has(first.id) && first.worker === victim && second.worker !== victim;
    const counted = first.attempt === 1 && second.attempt === 2 && others.length === 0;
    if (!explained || !counted) problems.push(`job ${first.id} was repeated without a reason: ${attempts}`);
  }
  if (held.size === 0) problems.push("no worker was killed inside its handlers");
  if (repeated.length !== held.size) problems.push(`${held.size} jobs were held, but ${repeated.length} were repeated`);
  return problems;
}

function reportStats({ ready, processing, acked, failed }) {
  tell(`The queue: ${ready} ready, ${processing} processing, ${number(acked)} acked, ${failed} failed.`);
  const drained = ready === 0 && processing === 0 && failed === 0 && acked === JOBS;
  return drained ? [] : ["the queue does not count every job as acked"];
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (groups.has(key)) groups.get(key).push(item);
    else groups.set(key, [item]);
  }
  return groups;
}

/** "issues 232, pull_request 232, …", the most frequent first. */
function counts(items, keyOf, limit = Number.POSITIVE_INFINITY) {
  const groups = [...groupBy(items, keyOf)].map(([key, { length }]) => ({ key, length }));
  groups.sort((a, b) => b.length - a.length || a.key.localeCompare(b.key));
  const shown = groups.slice(0, limit).map(({ key, length }) => `${key} ${number(length)}`);
  return shown.join(", ") + (groups.length > limit ? `, … (${groups.length} kinds)` : "");
}
