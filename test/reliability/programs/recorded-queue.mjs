import { createHash } from "node:crypto";
import { openStorage } from "../../../dist/storage/location.js";

/** What stands for a payload in a history. */
export function nameOf(payload) {
  const text = typeof payload === "string" ? payload : Buffer.from(payload).toString();
  return text.length <= 64 ? text : createHash("sha256").update(text).digest("base64");
}

/** One queue on the seam below the API, all whose calls are recorded; a call that fails resolves to `undefined`. */
export class RecordedQueue {
  queue;
  #storage;
  #history;
  #consumer;
  #leaseMs;

  constructor({ location, queue, history, ...settings }) {
    this.queue = queue;
    this.#history = history;
    this.#storage = openStorage(location, { queue, text: true, ...settings });
  }

  async #record(call, perform, resultOf) {
    try {
      return await this.#history.record(call, perform, resultOf, certainlyNothing);
    } catch {
      return undefined;
    }
  }

  /** Jobs are `{ payload, jobId, delayMs, maxAttempts }`. */
  put(jobs, wait = {}) {
    const call = { f: "put", jobs: jobs.map((job) => this.#asked(job, this.queue)) };
    return this.#record(
      call,
      () => this.#storage.put(jobs, wait),
      (put) => ({ put }),
    );
  }

  dispatch(envelopes) {
    return this.#record(
      { f: "put", jobs: this.#askedOf(envelopes) },
      () => this.#storage.dispatch(envelopes),
      (put) => ({ put: put.flat() }),
    );
  }

  #askedOf(envelopes) {
    return envelopes.flatMap((envelope) => envelope.queues.map((queue) => this.#asked(envelope, queue)));
  }

  #asked({ payload, jobId, identity, delayMs, maxAttempts }, queue) {
    return { queue, payload: nameOf(payload), jobId, key: identity?.key, delayMs, maxAttempts };
  }

  async claim(limit, leaseMs, timeoutMs) {
    const call = { f: "claim", queue: this.queue, limit, leaseMs };
    const claimed = await this.#record(call, () => this.#storage.claim({ limit, leaseMs, timeoutMs }), deliveriesOf);
    return claimed ?? [];
  }

  settle(lease, how, { delayMs = 0, emit } = {}) {
    return this.#settle(lease, how, { delayMs, emit }, (move) => this.#storage.settle(lease, move));
  }

  #settle({ id, receipt }, how, { delayMs, emit }, perform) {
    const call = { f: "settle", how, id, receipt, delayMs, emits: emit && this.#askedOf(emit) };
    const given = { delayMs, emit, lastError: "no", exhaustedReason: "retries_exhausted", reason: "rejected" };
    return this.#record(
      call,
      () => perform({ ...given, event: how }),
      (state) => ({ state }),
    );
  }

  extend({ id, receipt }, ms) {
    const call = { f: "extend", id, receipt, ms };
    return this.#record(
      call,
      () => this.#storage.extend({ id, receipt }, ms),
      (leaseUntil) => ({ leaseUntil }),
    );
  }

  /** Takes a job as a worker does, whose lease is renewed; `undefined` = there was none. */
  async take(slot, waitMs) {
    const call = { f: "claim", queue: this.queue, limit: 1, leaseMs: this.#leaseMs, renews: true };
    let started = false;
    const delivery = await this.#record(
      call,
      () => this.#consumer.claim(slot, { waitMs }),
      (one) => {
        started = one !== undefined && this.#consumer.start(slot, one);
        // What this process was too slow to start is given to others.
        return started || one === undefined ? deliveriesOf(one ? [one] : []) : { deliveries: [], dropped: [one.id] };
      },
    );
    return started ? delivery : undefined;
  }

  consume(slots, leaseMs) {
    this.#leaseMs = leaseMs;
    const settings = { slots, leaseMs, heartbeatMs: leaseMs / 4, timeoutMs: undefined, graceMs: 0 };
    const deaf = () => {};
    const listener = { leaseLost: deaf, leaseRenewed: deaf, timedOut: deaf, overdue: deaf };
    this.#consumer = this.#storage.consume({ ...settings, maxAttempts: undefined }, listener);
  }

  settleTaken(slot, lease, how, { delayMs = 0, emit } = {}) {
    return this.#settle(lease, how, { delayMs, emit }, (move) => this.#consumer.settle(slot, lease, move));
  }

  alter(verb, id) {
    const perform = {
      remove: () => this.#storage.remove(id),
      replay: () => this.#storage.retryFailed({ id }),
      discard: () => this.#storage.purgeFailed({ id }),
    }[verb];
    return this.#record({ f: verb, id }, perform, (changed) => ({ changed: Number(changed) }));
  }

  purge(olderThanMs, includeFailed) {
    const perform = () => this.#storage.purge({ olderThanMs, includeFailed });
    return this.#record({ f: "purge", queue: this.queue }, perform, (changed) => ({ changed }));
  }

  replayAll() {
    const perform = () => this.#storage.retryFailed({});
    return this.#record({ f: "replayAll", queue: this.queue }, perform, (changed) => ({ changed }));
  }

  /** Everything else, of which no history is kept. */
  get storage() {
    return this.#storage;
  }

  async close() {
    this.#consumer?.close();
    await this.#storage.close();
  }
}

function deliveriesOf(claimed) {
  const deliveries = claimed.map(({ id, receipt, payload, attempt, leaseUntil }) => {
    return { id, receipt, payload: nameOf(payload), attempt, leaseUntil };
  });
  return { deliveries };
}

function certainlyNothing({ code, outcome }) {
  return outcome === "failed" || ["LEASE_EXPIRED", "NOT_FOUND", "FULL", "DEDUPLICATION_CONFLICT"].includes(code);
}
