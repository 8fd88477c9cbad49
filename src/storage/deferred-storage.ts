import type { JobState } from "../state.ts";
import type { BackupReport, BackupRequest, IntegrityCheck, IntegrityReport } from "./care.ts";
import type {
  ClaimRequest,
  Consumer,
  ConsumerListener,
  ConsumerSettings,
  Delivery,
  Enqueued,
  Entry,
  Envelope,
  FailedRecord,
  FailedRequest,
  FailedSelection,
  JobKey,
  JobRecord,
  Lease,
  ListRequest,
  PurgeRequest,
  QueueCounts,
  QueueStats,
  Settlement,
  Storage,
  StorageDiagnostics,
  Wait,
} from "./storage.ts";

/**
 * A storage whose code is loaded when it is first used, so that programs that use another one start without it. Calls
 * reach it in their order.
 */
export class DeferredStorage implements Storage {
  readonly #load: () => Promise<Storage>;
  #loaded: Promise<Storage> | undefined;

  constructor(load: () => Promise<Storage>) {
    this.#load = load;
  }

  put(entries: readonly Entry[], wait: Wait): Promise<Enqueued[]> {
    const copies = entries.map((entry) => ({ ...entry, payload: copied(entry.payload) }));
    return this.#with((storage) => storage.put(copies, wait));
  }

  dispatch(envelopes: readonly Envelope[]): Promise<Enqueued[][]> {
    return this.#with((storage) => storage.dispatch(envelopes));
  }

  claim(request: ClaimRequest): Promise<Delivery[]> {
    return this.#with((storage) => storage.claim(request));
  }

  settle(lease: Lease, move: Settlement): Promise<JobState> {
    return this.#with((storage) => storage.settle(lease, move));
  }

  extend(lease: Lease, ms: number): Promise<number> {
    return this.#with((storage) => storage.extend(lease, ms));
  }

  reclaim(): Promise<number> {
    return this.#with((storage) => storage.reclaim());
  }

  stats(): Promise<QueueStats> {
    return this.#with((storage) => storage.stats());
  }

  queues(prefix: string): Promise<QueueCounts[]> {
    return this.#with((storage) => storage.queues(prefix));
  }

  find(by: JobKey): Promise<JobRecord | undefined> {
    return this.#with((storage) => storage.find(by));
  }

  list(which: ListRequest): Promise<JobRecord[]> {
    return this.#with((storage) => storage.list(which));
  }

  listFailed(which: FailedRequest): Promise<FailedRecord[]> {
    return this.#with((storage) => storage.listFailed(which));
  }

  diagnostics(): Promise<StorageDiagnostics> {
    return this.#with((storage) => storage.diagnostics());
  }

  remove(id: number): Promise<boolean> {
    return this.#with((storage) => storage.remove(id));
  }

  retryFailed(which: FailedSelection): Promise<number> {
    return this.#with((storage) => storage.retryFailed(which));
  }

  purgeFailed(which: FailedSelection): Promise<number> {
    return this.#with((storage) => storage.purgeFailed(which));
  }

  purge(request: PurgeRequest): Promise<number> {
    return this.#with((storage) => storage.purge(request));
  }

  checkIntegrity(check: IntegrityCheck): Promise<IntegrityReport> {
    return this.#with((storage) => storage.checkIntegrity(check));
  }

  backup(request: BackupRequest): Promise<BackupReport> {
    return this.#with((storage) => storage.backup(request));
  }

  vacuum(): Promise<void> {
    return this.#with((storage) => storage.vacuum());
  }

  consume(settings: ConsumerSettings, listener: ConsumerListener): Consumer {
    return new DeferredConsumer(this.#with(async (storage) => storage.consume(settings, listener)));
  }

  stopWaiting(): void {
    this.#with(async (storage) => storage.stopWaiting()).catch(ignore);
  }

  close(): Promise<void> {
    return this.#with((storage) => storage.close());
  }

  #with<T>(use: (storage: Storage) => Promise<T>): Promise<T> {
    this.#loaded ??= this.#load();
    return this.#loaded.then(use);
  }
}

class DeferredConsumer implements Consumer {
  readonly #loaded: Promise<Consumer>;
  #consumer: Consumer | undefined;

  constructor(loaded: Promise<Consumer>) {
    this.#loaded = loaded.then((consumer) => {
      this.#consumer = consumer;
      return consumer;
    });
    this.#loaded.catch(ignore);
  }

  async claim(...request: Parameters<Consumer["claim"]>): Promise<Delivery | undefined> {
    return (await this.#loaded).claim(...request);
  }

  /** What is started was claimed, so the consumer is there. */
  start(slot: number, lease: Lease): boolean {
    return this.#consumer?.start(slot, lease) ?? false;
  }

  async settle(...end: Parameters<Consumer["settle"]>): Promise<JobState> {
    return (await this.#loaded).settle(...end);
  }

  close(): void {
    this.#loaded.then((consumer) => consumer.close()).catch(ignore);
  }
}

function copied(payload: Uint8Array | string): Uint8Array | string {
  return typeof payload === "string" ? payload : payload.slice();
}

/** Whoever calls next is told why. */
function ignore(): void {}
