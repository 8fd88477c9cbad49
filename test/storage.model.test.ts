import fc from "fast-check";
import { expect, test } from "vitest";
import type { Settlement } from "../dist/storage/storage.js";
import { CONFLICT, type Model, type NewModelJob } from "./reliability/support/model.ts";
import { onPostgres } from "./support/location.ts";
import { postgresBackend } from "./support/postgres-backend.ts";
import { sqliteBackend } from "./support/sqlite-backend.ts";
import { rejection } from "./support/storage.ts";
import { envelopeOf, type GivenLease, StorageRun } from "./support/storage-run.ts";

const SEQUENCES = 25;
const COMMANDS = 40;
const MINUTE_MS = 60_000;

type Command = fc.AsyncCommand<Model, StorageRun>;
type Verb = (run: StorageRun) => Promise<void>;

/** A command that is always possible: does it to both, and compares them. */
const both = (text: string, perform: Verb): Command => ({
  check: () => true,
  run: async (_, run) => {
    await perform(run);
    await run.compare();
  },
  toString: () => text,
});

let payloads = 0;
const queue = fc.constantFrom("a", "b");
const name = fc.constantFrom("x", "y", "z");
const maxAttempts = fc.integer({ min: 1, max: 3 });
const lastError = fc.option(fc.constantFrom("Error: no", "timeout"), { nil: undefined });
/** Which of the leases that were given so far: counted from the last one. */
const which = fc.oneof(fc.constant(0), fc.nat(12));

const put = fc
  .record({
    queue,
    maxAttempts,
    delayMs: fc.constantFrom(0, 0, MINUTE_MS),
    names: fc.array(fc.option(name), { minLength: 1, maxLength: 3 }),
  })
  .map(({ names, ...job }) =>
    both(`put ${JSON.stringify({ ...job, names })}`, async (run) => {
      const jobs = names.map((jobId): NewModelJob => ({ ...job, jobId, payload: `payload ${++payloads}` }));
      const entries = jobs.map(({ payload, jobId }) => ({ ...job, payload, jobId: jobId ?? undefined }));
      run.added(await run.of(job.queue).put(entries, {}), run.model.putMany(jobs, run.now));
    }),
  );

const claim = fc
  .record({ queue, limit: fc.integer({ min: 1, max: 3 }), leaseMs: fc.constantFrom(MINUTE_MS, 5 * MINUTE_MS) })
  .map((given) =>
    both(`claim ${JSON.stringify(given)}`, async (run) => {
      const deliveries = await run.of(given.queue).claim({ ...given, timeoutMs: 0 });
      run.claimed(given.queue, deliveries, run.model.claim(given.queue, given.limit, given.leaseMs, run.now, true));
    }),
  );

const event = fc
  .record({
    queues: fc.uniqueArray(queue, { minLength: 1 }),
    jobId: name,
    identity: fc.option(fc.record({ key: name, fingerprint: fc.constantFrom("1", "2") })),
    maxAttempts,
  })
  .map(({ queues, identity, ...rest }): NewModelJob[] => {
    const payload = `payload ${++payloads}`;
    return queues.map((each) => ({ queue: each, payload, ...identity, ...rest }));
  });
const events = fc.array(event, { minLength: 1, maxLength: 2 });

const dispatch = events.map((given) =>
  both(`dispatch ${JSON.stringify(given)}`, async (run) => {
    const dispatched = run.of("a").dispatch(given.map(envelopeOf));
    dispatched.catch(() => {}); // looked at below
    const expected = run.model.dispatch(given, run.now);
    if (expected === CONFLICT) expect(await rejection(dispatched)).toMatchObject({ code: "DEDUPLICATION_CONFLICT" });
    else run.added((await dispatched).flat(), expected.flat());
  }),
);

const settlement: fc.Arbitrary<Settlement> = fc.oneof(
  fc.constant({ event: "ack" } as const),
  fc.record({
    event: fc.constant("nack" as const),
    delayMs: fc.constantFrom(0, MINUTE_MS),
    lastError,
    exhaustedReason: fc.constantFrom("retries_exhausted" as const, "handler_timeout" as const),
  }),
  fc.record({
    event: fc.constant("fail" as const),
    lastError,
    reason: fc.constant("rejected" as const),
    category: fc.option(name, { nil: undefined }),
  }),
  fc.constant({ event: "release" } as const),
);

function withLease(
  text: string,
  back: number,
  perform: (run: StorageRun, given: GivenLease) => Promise<void>,
): Command {
  return both(`${text} with lease -${back}`, async (run) => {
    const given = run.leases.at(-1 - back);
    if (given !== undefined) await perform(run, given);
  });
}

/** What the real one did with a lease must be what the model says; `undefined` = it was lost. */
async function expectSame(real: Promise<unknown>, expected: unknown): Promise<void> {
  if (expected === undefined) expect(await rejection(real)).toMatchObject({ code: "LEASE_EXPIRED" });
  else if (expected === CONFLICT) expect(await rejection(real)).toMatchObject({ code: "DEDUPLICATION_CONFLICT" });
  else expect(await real).toEqual(expected);
}

const settle = fc.tuple(settlement, which).map(([move, back]) =>
  withLease(JSON.stringify(move), back, async (run, { lease, job, queue: of }) => {
    const expected = run.model.settle(job, lease.receipt, move, run.now);
    await expectSame(run.of(of).settle(lease, move), expected);
  }),
);

const emit = fc.tuple(events, which).map(([given, back]) =>
  withLease(`emit ${JSON.stringify(given)}`, back, async (run, { lease, job, queue: of }) => {
    const expected = run.model.emit(job, lease.receipt, given, run.now);
    await expectSame(run.of(of).settle(lease, { event: "ack", emit: given.map(envelopeOf) }), expected);
    await run.learnIds();
    await run.learnIds();
  }),
);

const extend = fc.tuple(fc.constantFrom(MINUTE_MS, 10 * MINUTE_MS), which).map(([ms, back]) =>
  withLease(`extend by ${ms}`, back, async (run, { lease, job, queue: of }) => {
    const until = run.model.extend(job, lease.receipt, ms, run.now);
    await expectSame(run.of(of).extend(lease, ms).then(Boolean), until === undefined ? undefined : true);
  }),
);

const alter = fc.tuple(fc.constantFrom("remove", "replay", "discard"), queue, which).map(([verb, of, index]) =>
  both(`${verb} job ${index} of ${of}`, async (run) => {
    const wanted = verb === "remove" ? "ready" : "failed";
    const jobs = run.model.jobs.filter(({ state }) => state === wanted);
    const job = jobs.at(index % Math.max(1, jobs.length))?.id ?? index;
    const id = run.idOf(job);
    const storage = run.of(of);
    const changed = verb === "replay" ? run.model.replay(of, job, run.now) : run.model.delete(of, job, wanted);
    if (verb === "remove") expect(await storage.remove(id)).toBe(changed);
    else {
      const altered = verb === "replay" ? storage.retryFailed({ id }) : storage.purgeFailed({ id });
      if (changed) expect(await altered).toBe(1);
      else expect(await rejection(altered)).toMatchObject({ code: "NOT_FOUND" });
    }
  }),
);

const purge = fc
  .record({ queue, olderThanMs: fc.constantFrom(0, MINUTE_MS), includeFailed: fc.boolean() })
  .map(({ queue: of, ...request }) =>
    both(`purge ${of} ${JSON.stringify(request)}`, async (run) => {
      const purged = await run.of(of).purge(request);
      // What was done in the same millisecond is a moment older by now.
      expect(purged).toBe(run.model.purge(of, run.now + 1 - request.olderThanMs, request.includeFailed));
    }),
  );

const replayAll = queue.map((of) =>
  both(`replay all of ${of}`, async (run) => {
    expect(await run.of(of).retryFailed({})).toBe(run.model.replayAll(of, run.now));
  }),
);

const reclaim = queue.map((of) =>
  both(`reclaim ${of}`, async (run) => {
    expect(await run.of(of).reclaim()).toBe(run.model.expire(of, run.now));
  }),
);

const elapse = fc
  .constantFrom(2 * MINUTE_MS, 7 * MINUTE_MS)
  .map((ms) => both(`${ms} ms pass`, (run) => run.elapse(ms)));

const VERBS = [put, claim, claim, dispatch, settle, settle, emit, extend, alter, purge, replayAll, reclaim, elapse];

test("a storage does what its model does, whatever is asked of it", async () => {
  const commands = fc.commands(VERBS, { maxCommands: COMMANDS, size: "max" });
  const property = fc.asyncProperty(commands, async (given) => {
    const bench = await (onPostgres ? postgresBackend : sqliteBackend).open();
    try {
      const run = new StorageRun(bench);
      await run.of("a").stats(); // so that everything is there
      await fc.asyncModelRun(() => ({ model: run.model, real: run }), given);
    } finally {
      await bench.close();
    }
  });
  await fc.assert(property, { seed: 1, numRuns: SEQUENCES });
}, 120_000);
