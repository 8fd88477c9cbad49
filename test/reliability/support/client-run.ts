import { rmSync } from "node:fs";
import { openStorage } from "../../../dist/storage/location.js";
import type { Delivery, Storage } from "../../../dist/storage/storage.js";
import { TestClock, TestEngine } from "../../support/engine-harness.ts";
import { faultsOf } from "../../support/inspect.ts";
import { check, type Findings } from "./checker.ts";
import { drain, finalRows } from "./drain.ts";
import type { Call, Result, SettleCall } from "./history.ts";
import { memoryDirectory } from "./memory-directory.ts";
import { Story } from "./story.ts";

const QUEUES = ["a", "b"];
const LEASE_MS = 600_000;

/** What a program does, one after the other; it waits for nothing. */
export type Act =
  | { readonly act: "put"; readonly queue: number; readonly jobs: number; readonly aborts: boolean }
  | { readonly act: "claim"; readonly queue: number; readonly limit: number; readonly waits: boolean }
  | { readonly act: "settle"; readonly how: SettleCall["how"]; readonly which: number }
  | { readonly act: "extend"; readonly which: number }
  | { readonly act: "abort"; readonly which: number }
  | { readonly act: "close"; readonly queue: number }
  | { readonly act: "kill"; readonly afterWork: boolean };

/** A program that uses two queues of one directory, and all that became of what it asked for. */
export class ClientRun {
  readonly #directory: string = memoryDirectory();
  readonly #kill: (afterWork: boolean) => void;
  #events = 0;
  /** Set for the time after the program's end. */
  #drainClock: TestClock | undefined;
  readonly #story: Story = new Story(() => ({ mono: ++this.#events, wall: this.#drainClock?.wall ?? Date.now() }));
  #storages: Storage[];
  readonly #held: { delivery: Delivery; queue: string; storage: Storage }[] = [];
  readonly #controllers: AbortController[] = [];
  readonly #underWay: Promise<unknown>[] = [];
  #jobs = 0;
  #killed = false;

  constructor(kill: (afterWork: boolean) => void) {
    this.#kill = kill;
    // The file is there, whatever becomes of the calls.
    new TestEngine({ directory: this.#directory, idle: true, closedByCaller: true }).close();
    this.#storages = QUEUES.map((queue) => this.#open(queue));
  }

  #open(queue: string): Storage {
    return openStorage(this.#directory, { queue, fsync: undefined });
  }

  perform(act: Act): void {
    switch (act.act) {
      case "put":
        this.#put(act.queue, act.jobs, act.aborts);
        break;
      case "claim":
        this.#claim(act.queue, act.limit, act.waits);
        break;
      case "settle":
        this.#settle(act.how, act.which);
        break;
      case "extend":
        this.#extend(act.which);
        break;
      case "abort":
        this.#controllers.at(-1 - act.which)?.abort(new Error("aborted"));
        break;
      case "close":
        this.#underWay.push(this.#storage(act.queue).close());
        this.#storages = this.#storages.with(act.queue, this.#open(QUEUES[act.queue] as string));
        break;
      case "kill":
        this.#killed = true;
        this.#kill(act.afterWork);
        break;
    }
  }

  #storage(queue: number): Storage {
    return this.#storages[queue] as Storage;
  }

  #record<T>(call: Call, promise: Promise<T>, resultOf: (value: T) => Result): void {
    const of = this.#story.invoke("client", call);
    const settled = promise.then(
      (value) => this.#story.ok("client", of, resultOf(value)),
      (error: { code?: string; outcome?: string; message?: string }) => {
        const code = error.code === "LEASE_EXPIRED" ? "lost" : (error.code ?? error.message ?? "?");
        // A claim that is given up is given back, for which there has to be an engine.
        const sure = error.outcome === undefined ? call.f !== "claim" || !this.#killed : error.outcome === "failed";
        this.#story.failed("client", of, sure ? "fail" : "info", code);
      },
    );
    this.#underWay.push(settled);
  }

  #put(number: number, length: number, aborts: boolean): void {
    const queue = QUEUES[number] as string;
    const jobs = Array.from({ length }, () => ({ queue, payload: `job ${++this.#jobs}` }));
    const entries = jobs.map(({ payload }) => ({ payload, jobId: undefined, delayMs: 0, maxAttempts: 4 }));
    const put = this.#storage(number).put(entries, aborts ? { signal: this.#newSignal() } : {});
    this.#record({ f: "put", jobs }, put, (given) => ({ put: given }));
  }

  #newSignal(): AbortSignal {
    const controller = new AbortController();
    this.#controllers.push(controller);
    return controller.signal;
  }

  #claim(number: number, limit: number, waits: boolean): void {
    const queue = QUEUES[number] as string;
    const storage = this.#storage(number);
    const wait = waits ? { signal: this.#newSignal() } : { timeoutMs: 0, signal: this.#newSignal() };
    const call: Call = { f: "claim", queue, limit, leaseMs: LEASE_MS };
    this.#record(call, storage.claim({ limit, leaseMs: LEASE_MS, ...wait }), (deliveries) => ({
      deliveries: deliveries.map((delivery) => {
        this.#held.push({ delivery, queue, storage });
        const { id, receipt, attempt, leaseUntil, payload } = delivery;
        return { id, receipt, attempt, leaseUntil, payload: Buffer.from(payload).toString() };
      }),
    }));
  }

  #settle(how: SettleCall["how"], which: number): void {
    const held = this.#held.at(-1 - which);
    if (held === undefined) return;
    const { id, receipt } = held.delivery;
    const moves = {
      ack: { event: "ack" },
      nack: { event: "nack", delayMs: 0, lastError: "no", exhaustedReason: "retries_exhausted" },
      fail: { event: "fail", lastError: "no", reason: "rejected", category: undefined },
      release: { event: "release" },
    } as const;
    const settling = held.storage.settle({ id, receipt }, moves[how]);
    this.#record({ f: "settle", how, id, receipt, delayMs: 0 }, settling, (state) => ({ state }));
  }

  #extend(which: number): void {
    const held = this.#held.at(-1 - which);
    if (held === undefined) return;
    const { id, receipt } = held.delivery;
    const extending = held.storage.extend({ id, receipt }, LEASE_MS);
    this.#record({ f: "extend", id, receipt, ms: LEASE_MS }, extending, (leaseUntil) => ({ leaseUntil }));
  }

  /** Whatever has happened, the next put goes on as usual. */
  async goOn(): Promise<void> {
    const payload = `job ${++this.#jobs}`;
    const put = this.#storage(0).put([{ payload, jobId: undefined, delayMs: 0, maxAttempts: 4 }], {});
    this.#record({ f: "put", jobs: [{ queue: QUEUES[0] as string, payload }] }, put, (given) => ({ put: given }));
    await put;
  }

  /** Closes everything; when this resolves, every call has been answered. */
  async end(): Promise<void> {
    this.#underWay.push(...this.#storages.map((storage) => storage.close()));
    await Promise.all(this.#underWay);
  }

  /** What the program was told, held against what is in the file. */
  judge(): Findings & { readonly stillHeld: readonly string[] } {
    const processing = finalRows(this.#directory).filter(({ state }) => state === "processing");
    const known = new Set(this.#held.map(({ delivery }) => delivery.id));
    // Only who lost an engine may have jobs of which he never heard.
    const stillHeld = this.#killed ? [] : processing.filter(({ id }) => !known.has(id)).map(({ payload }) => payload);
    this.#drainClock = new TestClock();
    this.#drainClock.wall = Date.now() + 2 * LEASE_MS;
    drain(this.#directory, QUEUES, this.#drainClock, this.#story);
    const history = this.#story.entries;
    const findings = check({
      history,
      rows: finalRows(this.#directory),
      drained: true,
      faults: faultsOf(this.#directory),
    });
    return { ...findings, stillHeld };
  }

  remove(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
