import fc from "fast-check";
import { expect } from "vitest";
import type { Settlement } from "../../../dist/storage/storage.js";
import { putCommand } from "../../support/engine-harness.ts";
import type { Model, NewModelJob } from "./model.ts";
import { CONFLICT } from "./model.ts";
import { eventOf, type ModelRun } from "./model-run.ts";

type Command = fc.Command<Model, ModelRun>;

/** A command that is always possible: does it to both, and compares them. */
class Both implements Command {
  readonly #text: string;
  readonly #perform: (run: ModelRun) => void;

  constructor(text: string, perform: (run: ModelRun) => void) {
    this.#text = text;
    this.#perform = perform;
  }

  check(): boolean {
    return true;
  }

  run(_: Model, run: ModelRun): void {
    this.#perform(run);
    run.serve();
    run.compare();
  }

  toString(): string {
    return this.#text;
  }
}

const QUEUES = ["a", "b"];
const queue = fc.constantFrom(...QUEUES);
const maxAttempts = fc.integer({ min: 1, max: 3 });
/** A few names, so that they meet. */
const name = fc.constantFrom("x", "y", "z");
/** Which of the things that were given so far: counted from the last one. */
const which = fc.oneof(fc.constant(0), fc.nat(12));

let payloads = 0;
const newPayload = (): string => `payload ${++payloads}`;

const put: fc.Arbitrary<Command> = fc
  .record({
    queue,
    maxAttempts,
    delayMs: fc.constantFrom(0, 0, 300, 5000),
    names: fc.array(fc.option(name), { minLength: 1, maxLength: 3 }),
    limit: fc.option(fc.constantFrom(1, 3, 8), { nil: undefined }),
  })
  .map(
    ({ names, limit, ...job }) =>
      new Both(`put ${JSON.stringify({ ...job, names, limit })}`, (run) => {
        const jobs = names.map((jobId): NewModelJob => ({ ...job, jobId, payload: newPayload() }));
        const call = run.engine.newCall();
        const rest = { queue: job.queue, maxPending: limit, waitMs: limit === undefined ? undefined : 0 } as object;
        const entries = jobs.map(({ payload, jobId = null }) => ({
          payload: Buffer.from(payload),
          jobId,
          delayMs: job.delayMs,
          maxAttempts: job.maxAttempts,
        }));
        run.engine.send([{ ...putCommand(call.id, ["?"], rest), entries }]);
        run.settle();
        const additions = run.model.additions(jobs);
        if (limit !== undefined && additions > limit) expect(call.answer).toMatchObject({ refused: "oversized" });
        else if (limit !== undefined && additions > Math.max(0, limit - run.model.load(job.queue))) {
          expect(call.answer).toMatchObject({ refused: "full" });
        } else expect(call.put).toEqual(run.model.putMany(jobs, run.now));
      }),
  );

const claim: fc.Arbitrary<Command> = fc
  .record({
    queue,
    limit: fc.integer({ min: 1, max: 3 }),
    leaseMs: fc.constantFrom(1000, 10_000),
    waitMs: fc.constantFrom(0, 0, 700, Number.POSITIVE_INFINITY),
  })
  .map(
    ({ waitMs, ...claiming }) =>
      new Both(`claim ${JSON.stringify(claiming)}, waiting ${waitMs} ms`, (run) => {
        const call = run.engine.claim({ ...claiming, waitMs });
        run.addWaiter({ ...claiming, call }, waitMs);
        run.settle();
      }),
  );

const event = fc
  .record({
    queues: fc.uniqueArray(queue, { minLength: 1 }),
    jobId: name,
    identity: fc.option(fc.record({ key: name, fingerprint: fc.constantFrom("1", "2") })),
    maxAttempts,
  })
  .map(({ queues, jobId, identity, maxAttempts: most }): NewModelJob[] => {
    const payload = newPayload();
    return queues.map((each) => ({ queue: each, payload, jobId, ...identity, maxAttempts: most }));
  });
const events = fc.array(event, { minLength: 1, maxLength: 2 });

const dispatch: fc.Arbitrary<Command> = events.map(
  (given) =>
    new Both(`dispatch ${JSON.stringify(given)}`, (run) => {
      const call = run.engine.dispatch(given.map(eventOf));
      run.settle();
      const expected = run.model.dispatch(given, run.now);
      if (expected === CONFLICT) expect(call.answer).toHaveProperty("conflict");
      else expect(call.answer).toMatchObject({ dispatched: expected });
    }),
);

const error = fc.option(fc.constantFrom("Error: no", "timeout"), { nil: undefined });
const settlement: fc.Arbitrary<Settlement> = fc.oneof(
  fc.constant({ event: "ack" } as const),
  fc.record({
    event: fc.constant("nack" as const),
    delayMs: fc.constantFrom(0, 300, 5000),
    lastError: error,
    exhaustedReason: fc.constantFrom("retries_exhausted" as const, "handler_timeout" as const),
  }),
  fc.record({
    event: fc.constant("fail" as const),
    lastError: error,
    reason: fc.constant("rejected" as const),
    category: fc.option(name, { nil: undefined }),
  }),
  fc.constant({ event: "release" } as const),
);

/** With a lease that somebody was given some time: it may be over, or another's by now. */
function withLease(
  text: string,
  perform: (run: ModelRun, lease: ModelRun["leases"][number]) => void,
  back: number,
): Both {
  return new Both(`${text} with lease -${back}`, (run) => {
    const lease = run.leases.at(-1 - back);
    if (lease !== undefined) perform(run, lease);
  });
}

const settle: fc.Arbitrary<Command> = fc.tuple(settlement, which).map(([move, back]) =>
  withLease(
    JSON.stringify(move),
    (run, lease) => {
      const call = run.engine.newCall();
      run.engine.send([{ ...commandBase(call.id, lease.queue), op: "settle", lease, move }]);
      run.settle();
      const state = run.model.settle(lease.id, lease.receipt, move, run.now);
      expect(call.answer).toMatchObject(state === undefined ? { refused: "lost" } : { settled: state });
    },
    back,
  ),
);

const emit: fc.Arbitrary<Command> = fc.tuple(events, which).map(([given, back]) =>
  withLease(
    `emit ${JSON.stringify(given)}`,
    (run, lease) => {
      const call = run.engine.newCall();
      const emitted = { events: given.map(eventOf), bytes: 1 };
      run.engine.send([
        { ...commandBase(call.id, lease.queue), op: "settle", lease, move: { event: "ack" }, emit: emitted },
      ]);
      run.settle();
      const state = run.model.emit(lease.id, lease.receipt, given, run.now);
      if (state === CONFLICT) expect(call.answer).toHaveProperty("conflict");
      else expect(call.answer).toMatchObject(state === undefined ? { refused: "lost" } : { settled: state });
    },
    back,
  ),
);

const extend: fc.Arbitrary<Command> = fc.tuple(fc.constantFrom(100, 2000, 20_000), which).map(([ms, back]) =>
  withLease(
    `extend by ${ms}`,
    (run, lease) => {
      const call = run.engine.newCall();
      run.engine.send([{ ...commandBase(call.id, lease.queue), op: "extend", lease, ms }]);
      run.settle();
      const until = run.model.extend(lease.id, lease.receipt, ms, run.now);
      expect(call.answer).toMatchObject(until === undefined ? { refused: "lost" } : { extended: until });
    },
    back,
  ),
);

function commandBase(
  id: number,
  origin: string,
): { id: number; origin: ReturnType<typeof putCommand>["origin"]; lockMs: number } {
  const { origin: usual, lockMs } = putCommand(id, ["?"], { queue: origin });
  return { id, origin: usual, lockMs };
}

const alter: fc.Arbitrary<Command> = fc
  .tuple(fc.constantFrom("remove" as const, "replay" as const, "discard" as const), queue, which)
  .map(
    ([verb, of, index]) =>
      new Both(`${verb} job ${index} of ${of}`, (run) => {
        const wanted = verb === "remove" ? "ready" : "failed";
        const jobs = run.model.jobs.filter(({ state }) => state === wanted);
        const job = jobs.at(index % Math.max(1, jobs.length))?.id ?? index;
        const call = run.engine.newCall();
        run.engine.send([{ ...commandBase(call.id, of), op: "alter", verb, job }]);
        run.settle();
        const changed = verb === "replay" ? run.model.replay(of, job, run.now) : run.model.delete(of, job, wanted);
        if (!changed && verb !== "remove") expect(call.answer).toMatchObject({ refused: "missing" });
        else expect(call.answer).toMatchObject({ changed: changed ? 1 : 0 });
      }),
  );

const purge: fc.Arbitrary<Command> = fc
  .record({ queue, olderThanMs: fc.constantFrom(0, 1000), includeFailed: fc.boolean() })
  .map(
    ({ queue: of, ...request }) =>
      new Both(`purge ${of} ${JSON.stringify(request)}`, (run) => {
        const call = run.engine.newCall();
        run.engine.send([{ ...commandBase(call.id, of), op: "sweep", sweep: { kind: "purge", ...request } }]);
        run.settle();
        const changed = run.model.purge(of, run.now - request.olderThanMs, request.includeFailed);
        expect(call.answer).toMatchObject({ changed });
      }),
  );

const replayAll: fc.Arbitrary<Command> = queue.map(
  (of) =>
    new Both(`replay all of ${of}`, (run) => {
      const call = run.engine.newCall();
      run.engine.send([{ ...commandBase(call.id, of), op: "sweep", sweep: { kind: "retryFailed" } }]);
      run.settle();
      expect(call.answer).toMatchObject({ changed: run.model.replayAll(of, run.now) });
    }),
);

const reclaim: fc.Arbitrary<Command> = queue.map(
  (of) =>
    new Both(`reclaim ${of}`, (run) => {
      const call = run.engine.newCall();
      run.engine.send([{ ...commandBase(call.id, of), op: "reclaim" }]);
      run.settle();
      expect(call.answer).toMatchObject({ reclaimed: run.model.expire(of, run.now) });
    }),
);

const stats: fc.Arbitrary<Command> = queue.map(
  (of) =>
    new Both(`stats of ${of}`, (run) => {
      const call = run.engine.stats(of);
      run.settle();
      expect(call.answer?.stats).toEqual(run.countsOf(of));
    }),
);

const elapse: fc.Arbitrary<Command> = fc
  .constantFrom(1, 250, 700, 1000, 5000, 10_000)
  .map((ms) => new Both(`${ms} ms pass`, (run) => run.elapse(ms)));

const setClock: fc.Arbitrary<Command> = fc.constantFrom(-3_600_000, -20_000, -1500, -400, 400, 1500, 20_000).map(
  (ms) =>
    new Both(`the clock is set by ${ms} ms`, (run) => {
      run.clock.wall += ms;
      run.settle();
    }),
);

const reopen: fc.Arbitrary<Command> = fc.constantFrom(0, 0, -1500, -20_000, 20_000).map(
  (ms) =>
    new Both(`reopened, with the clock set by ${ms} ms`, (run) => {
      run.clock.wall += ms;
      run.reopen();
    }),
);

const often = <T>(times: number, arbitrary: T): T[] => Array.from({ length: times }, () => arbitrary);

/** Everything that can be done to a queue, and what can happen to it. */
export const COMMANDS: fc.Arbitrary<Command>[] = [
  ...often(4, put),
  ...often(5, claim),
  ...often(5, settle),
  ...often(3, elapse),
  dispatch,
  emit,
  extend,
  alter,
  purge,
  replayAll,
  reclaim,
  stats,
  setClock,
  reopen,
];
