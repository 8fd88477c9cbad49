import { isDeepStrictEqual } from "node:util";
import { ConsumerLoop, type Idleness } from "../consumer-loop.ts";
import type { Emitter } from "../emitter.ts";
import { isRetryPolicy, isSamePolicy } from "../retry.ts";
import type { Storage } from "../storage/storage.ts";
import {
  type CheckedWorkerOptions,
  consumerSettings,
  readWorkerOptions,
  type WorkerOptions,
} from "../worker-options.ts";
import type { ContextFactory } from "./bus-options.ts";
import type { Dispatcher } from "./dispatcher.ts";
import { type EventBusEvents, EventWork, type Received } from "./event-work.ts";
import type { Handlers } from "./handlers.ts";

export interface ConsumptionOptions {
  readonly subscription: string;
  /** The name of its queue. */
  readonly queue: string;
  readonly storage: Storage;
  readonly leaseMs: number;
  readonly handlers: Handlers;
  readonly dispatcher: Dispatcher;
  readonly createContext: ContextFactory<object> | undefined;
  readonly events: Emitter<EventBusEvents>;
}

/** How this process consumes one subscription: settings, handlers, and the loop while it runs. */
export class Consumption {
  readonly #options: ConsumptionOptions;
  /** What was set so far; the rest is by default. */
  #given: WorkerOptions = {};
  #settings: CheckedWorkerOptions;
  #loop: ConsumerLoop<Received> | undefined;
  #hasRun = false;

  constructor(options: ConsumptionOptions) {
    this.#options = options;
    this.#settings = readWorkerOptions(undefined, options.leaseMs);
  }

  get subscription(): string {
    return this.#options.subscription;
  }

  get handlers(): Handlers {
    return this.#options.handlers;
  }

  /** For how long it has had nothing to do, in milliseconds. */
  get idleMs(): number {
    return this.#loop?.idleMs ?? Number.POSITIVE_INFINITY;
  }

  /** How long ago it last began to look for something, and found nothing. */
  get lookedMs(): number {
    return this.#loop?.lookedMs ?? 0;
  }

  /** The options are those of the subscription, whoever sets them: each of them once, or again to the same value. */
  configure(options: WorkerOptions | undefined): void {
    if (options === undefined) return;
    this.assertOpen("its options");
    readWorkerOptions(options, this.#options.leaseMs);
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    for (const [name, value] of given) {
      const set = this.#given[name as keyof WorkerOptions];
      if (set !== undefined && !isSame(set, value)) {
        throw new Error(
          `The option \`${name}\` of subscription "${this.subscription}" is set to another value already`,
        );
      }
    }
    this.#given = { ...this.#given, ...Object.fromEntries(given) };
    this.#settings = readWorkerOptions(this.#given, this.#options.leaseMs);
  }

  /** Throws if it cannot be run. */
  assertReady(): void {
    if (this.#loop !== undefined) throw new Error(`Subscription "${this.subscription}" is running already`);
    this.handlers.assertComplete();
  }

  /** Throws once it has run. */
  assertOpen(what: string): void {
    if (this.#hasRun) throw new Error(`Subscription "${this.subscription}" has been run: ${what} must be set before`);
  }

  /** Serves until `stop()`, or until it is idle. */
  async run(idleness: Idleness | undefined): Promise<void> {
    const { storage, leaseMs, ...rest } = this.#options;
    const settings = consumerSettings(this.#settings, leaseMs, this.#settings.concurrency);
    this.#hasRun = true;
    this.#loop = new ConsumerLoop(storage, settings, new EventWork({ ...rest, settings: this.#settings }));
    try {
      await this.#loop.run(idleness);
    } finally {
      this.#loop = undefined;
    }
  }

  async stop(): Promise<void> {
    await this.#loop?.stop();
  }
}

function isSame(one: unknown, other: unknown): boolean {
  return isRetryPolicy(one) && isRetryPolicy(other) ? isSamePolicy(one, other) : isDeepStrictEqual(one, other);
}
