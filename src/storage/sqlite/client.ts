import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import { LeaseExpiredError, QueueClosedError, StorageError } from "../../errors.ts";
import { clearTimeout, monotonicNow, queueMicrotask, setTimeout } from "../../timers.ts";
import { DirectoryWatch } from "./changes.ts";
import { OutgoingBatch } from "./outgoing.ts";
import {
  type Answer,
  type Command,
  type ConsumerOnWire,
  cellTime,
  type ErrorOnWire,
  type FromEngine,
  type HeldOnWire,
  type LeaseNews,
  monotonicMs,
  SIGNAL,
  SIGNALS,
  type ToEngine,
} from "./protocol.ts";
import type { ThreadData } from "./thread.ts";

/** Enough to keep the engine busy; what waits beyond can still be withdrawn. */
const BATCHES_IN_FLIGHT = 2;
/** What callers may have under way before they are refused: a producer that never waits must not fill the memory. */
const BUFFERED_BYTES = 256 * 1024 * 1024;
/** What an entry costs beside its payload, roughly. */
const COMMAND_BYTES = 256;
const TICK_MS = 250;
const CLOSING_MS = 500;
/** However short the time-out: a busy engine is waited for this long, and one that is being started this long. */
const LEAST_PATIENCE_MS = 100;
const OPENING_MS = 1000;
const RESTART_MS = { first: 50, longest: 5000 };

export interface Demand {
  /** Builds the command, and encodes its payloads into the batch. */
  readonly make: (id: number, batch: OutgoingBatch) => Command;
  /** The payloads' size. */
  readonly bytes?: number;
  /** How long it may wait here before it is sent. */
  readonly patienceMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** The engine's answer, and the memory that payloads in it refer to. */
export interface Reply<A extends Answer = Answer> {
  readonly answer: A;
  readonly memory: ArrayBuffer | undefined;
}

interface Request {
  readonly command: Command;
  readonly bytes: number;
  readonly askedAt: number;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal | undefined;
  readonly onAbort: () => void;
  /** Where it waits; `undefined` once it was sent. */
  batch: OutgoingBatch | undefined;
  /** When to give up waiting. */
  endsAt: number;
}

/** What the client keeps of a consumer, so that a new engine can go on where the former one died. */
export interface ConsumerRecord {
  readonly settings: ConsumerOnWire;
  readonly held: () => readonly HeldOnWire[];
  readonly tell: (news: LeaseNews) => void;
}

interface Thread {
  readonly worker: Worker;
  readonly port: MessagePort;
  readonly exited: Promise<void>;
  ready: boolean;
}

const clients = new Map<string, Client>();

/**
 * This JavaScript thread's side of one database: gathers commands into batches, keeps the engine's thread running and
 * hands its answers back. There is one per directory, shared by every queue and worker on it.
 */
export class Client {
  readonly #directory: string;
  readonly #signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
  readonly #watch: DirectoryWatch;
  readonly #requests = new Map<number, Request>();
  readonly #consumers = new Map<number, ConsumerRecord>();
  #batches: OutgoingBatch[] = [];
  #inFlight = 0;
  #flushing = false;
  #buffered = 0;
  #thread: Thread | undefined;
  #openedAt = 0;
  #restartMs = RESTART_MS.first;
  #users = 0;
  #ids = 0;
  #ticking = false;
  #patienceTimer: ReturnType<typeof setTimeout> | undefined;
  #openError: StorageError | undefined;
  /** Set when the files were replaced: whoever holds this client must not go on with other files unawares. */
  #lost: StorageError | undefined;

  private constructor(directory: string) {
    this.#directory = directory;
    this.#watch = new DirectoryWatch(directory, this.#signals, () => this.#wake());
  }

  /** The client of a directory; to be given back by `release`. */
  static acquire(directory: string): Client {
    let client = clients.get(directory);
    if (client === undefined) {
      client = new Client(directory);
      clients.set(directory, client);
    }
    client.#users++;
    return client;
  }

  /** Asks the engine for something. Whatever the command carries is copied before this returns. */
  request({ make, bytes = 0, patienceMs, signal }: Demand): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== undefined) throw this.#lost;
      if (signal?.aborted) throw signal.reason;
      const cost = bytes + COMMAND_BYTES;
      if (this.#buffered + cost > BUFFERED_BYTES) throw this.#flooded();
      const batch = this.#batchFor(bytes);
      const id = ++this.#ids;
      const command = make(id, batch);
      batch.commands.push(command);
      const askedAt = monotonicNow();
      const onAbort = (): void => this.#abort(id);
      this.#requests.set(id, {
        command,
        bytes: cost,
        askedAt,
        resolve,
        reject,
        signal,
        onAbort,
        batch,
        endsAt: askedAt + Math.max(patienceMs, LEAST_PATIENCE_MS),
      });
      signal?.addEventListener("abort", onAbort);
      this.#buffered += cost;
      if (this.#requests.size === 1) this.#stayAlive(true);
      if (!this.#flushing) {
        this.#flushing = true;
        queueMicrotask(() => this.#flush());
      }
    });
  }

  #batchFor(bytes: number): OutgoingBatch {
    const last = this.#batches.at(-1);
    if (last !== undefined && !last.full && last.fits(bytes)) return last;
    const batch = new OutgoingBatch();
    this.#batches.push(batch);
    return batch;
  }

  #flooded(): StorageError {
    const mebibytes = BUFFERED_BYTES / 1024 / 1024;
    return new StorageError(
      "BUSY",
      `More than ${mebibytes} MiB wait to be written to ${this.#directory}. Await earlier calls before making more.`,
    );
  }

  /** Sends what may be sent; the rest goes as the engine finishes batches. */
  #flush(): void {
    this.#flushing = false;
    if (this.#thread === undefined && this.#requests.size > 0) this.#start();
    while (this.#thread?.ready && this.#inFlight < BATCHES_IN_FLIGHT) {
      const batch = this.#batches.shift();
      if (batch === undefined) break;
      if (batch.commands.length === 0) continue;
      this.#inFlight++;
      this.#hurry(batch.commands);
      batch.send((message, transfer) => this.#post(message, transfer));
    }
    this.#watchPatience();
  }

  /** What was waited here is taken off what may be waited there. */
  #hurry(commands: Command[]): void {
    const now = monotonicNow();
    for (let i = 0; i < commands.length; i++) {
      const command = commands[i] as Command;
      const request = this.#requests.get(command.id) as Request;
      request.batch = undefined;
      const waitedMs = Math.floor(now - request.askedAt);
      if (waitedMs < 1) continue;
      const lockMs = Math.max(0, command.lockMs - waitedMs);
      commands[i] =
        command.op === "claim"
          ? { ...command, lockMs, waitMs: Math.max(0, command.waitMs - waitedMs) }
          : { ...command, lockMs };
    }
  }

  #post(message: ToEngine, transfer: ArrayBuffer[] = []): void {
    this.#tick();
    this.#thread?.port.postMessage(message, transfer);
    this.#wake();
  }

  #wake(): void {
    Atomics.add(this.#signals, SIGNAL.wake, 1);
    Atomics.notify(this.#signals, SIGNAL.wake);
  }

  #tick(): void {
    Atomics.store(this.#signals, SIGNAL.tick, cellTime(monotonicMs()));
  }

  /** Shows the engine that this thread is not stalled, for as long as that matters. */
  #keepTicking(): void {
    if (this.#ticking) return;
    this.#ticking = true;
    const beat = (): void => {
      this.#tick();
      if (Atomics.load(this.#signals, SIGNAL.stalled) === 1) this.#wake();
      this.#ticking = this.#thread !== undefined && (this.#requests.size > 0 || this.#consumers.size > 0);
      if (this.#ticking) setTimeout(beat, TICK_MS).unref();
    };
    beat();
  }

  /** A pending operation keeps the process alive; an idle engine does not. */
  #stayAlive(needed: boolean): void {
    if (needed) this.#keepTicking();
    const { worker, port } = this.#thread ?? {};
    if (needed) {
      worker?.ref();
      port?.ref();
    } else {
      worker?.unref();
      port?.unref();
    }
  }

  #settled(request: Request): void {
    this.#requests.delete(request.command.id);
    this.#buffered -= request.bytes;
    request.signal?.removeEventListener("abort", request.onAbort);
    if (this.#requests.size === 0) this.#stayAlive(false);
  }

  #reject(request: Request, reason: unknown): void {
    request.batch?.withdraw(request.command.id);
    this.#settled(request);
    request.reject(reason);
  }

  #abort(id: number): void {
    const request = this.#requests.get(id);
    if (request === undefined) return;
    if (request.batch !== undefined) this.#reject(request, request.signal?.reason);
    // The engine alone ends what it was asked: it may just have claimed a job.
    else this.#post({ kind: "abort", id });
  }

  /** Gives up on what could not be sent in time, because the engine is busy, locked out or not open yet. */
  #watchPatience(): void {
    clearTimeout(this.#patienceTimer);
    const unsent = [...this.#batches.flatMap(({ commands }) => commands)].map(
      ({ id }) => this.#requests.get(id) as Request,
    );
    const now = monotonicNow();
    let next = Number.POSITIVE_INFINITY;
    for (const request of unsent) {
      const endsAt = this.#thread?.ready ? request.endsAt : Math.max(request.endsAt, this.#openedAt + OPENING_MS);
      if (endsAt > now) next = Math.min(next, endsAt);
      else this.#reject(request, new StorageError("BUSY", `${this.#directory} was locked or busy for too long.`));
    }
    if (Number.isFinite(next)) {
      this.#patienceTimer = setTimeout(() => this.#watchPatience(), Math.min(next - now + 1, 0x7fff_ffff));
    }
  }

  #start(): void {
    const { port1: port, port2 } = new MessageChannel();
    const workerData: ThreadData = { directory: this.#directory, port: port2, signals: this.#signals };
    Atomics.store(this.#signals, SIGNAL.cancelled, 0);
    const worker = new Worker(new URL("./thread.js", import.meta.url), {
      name: "localqueue",
      workerData,
      transferList: [port2],
      execArgv: [],
      env: {},
    });
    const exited = new Promise<void>((resolve) => worker.once("exit", () => resolve()));
    const thread: Thread = { worker, port, exited, ready: false };
    let cause: unknown;
    worker.on("error", (error) => {
      cause = error;
    });
    worker.once("exit", () => this.#ended(thread, cause));
    port.on("message", (message: FromEngine) => this.#receive(message));
    this.#thread = thread;
    this.#openedAt = monotonicNow();
    for (const [consumer, record] of this.#consumers) this.#announce(consumer, record);
    this.#stayAlive(this.#requests.size > 0);
    this.#keepTicking();
  }

  #receive(message: FromEngine): void {
    switch (message.kind) {
      case "ready":
        if (this.#thread !== undefined) this.#thread.ready = true;
        this.#restartMs = RESTART_MS.first;
        if (!message.safe) warnOfUnsafeSqlite(message.driver, message.sqliteVersion);
        this.#flush();
        break;
      case "unopened":
        this.#openError = revive(message.error);
        break;
      case "reply":
        this.#inFlight -= message.batches;
        for (const news of message.news) this.#consumers.get(news.consumer)?.tell(news);
        for (const answer of message.answers) this.#answer(answer, message.memory);
        if (message.watch && this.#requests.size > 0) this.#watch.arm();
        if (this.#batches.length > 0) this.#flush();
        break;
    }
  }

  #answer(answer: Answer, memory: ArrayBuffer | undefined): void {
    const request = this.#requests.get(answer.id);
    if (request === undefined) return;
    this.#settled(request);
    if ("error" in answer) {
      const error = revive(answer.error);
      if (error.code === "FILE_REPLACED") this.#lost = error;
      request.reject(error);
    } else if ("refused" in answer) {
      request.reject(refusal(answer.refused, request.signal));
    } else {
      request.resolve({ answer, memory });
    }
  }

  /** The thread is gone: as asked, because the database could not be opened, or because it died. */
  #ended(thread: Thread, cause: unknown): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    this.#inFlight = 0;
    this.#watch.disarm();
    thread.port.close();
    const openError = this.#openError;
    this.#openError = undefined;
    for (const request of [...this.#requests.values()]) {
      this.#reject(request, openError ?? engineDied(this.#directory, request.batch === undefined, cause));
    }
    this.#batches = [];
    const holding = [...this.#consumers.values()].some(({ held }) => held().length > 0);
    if (!holding || this.#users === 0) return;
    setTimeout(() => {
      if (this.#thread === undefined && this.#users > 0) this.#start();
    }, this.#restartMs).unref();
    this.#restartMs = Math.min(this.#restartMs * 2, RESTART_MS.longest);
  }

  /** Registers a consumer, with this engine and with those that may follow it; returns its number. */
  consume(record: ConsumerRecord): number {
    const consumer = ++this.#ids;
    this.#consumers.set(consumer, record);
    this.#announce(consumer, record);
    return consumer;
  }

  #announce(consumer: number, { settings, held }: ConsumerRecord): void {
    this.#post({ kind: "consume", consumer, settings, held: held() });
    this.#keepTicking();
  }

  dismiss(consumer: number): void {
    this.#consumers.delete(consumer);
    this.#post({ kind: "dismiss", consumer });
  }

  /** Withdraws a session's waiting claims at once, and bounds what else it has under way. */
  closeSession(session: number): void {
    this.#post({ kind: "closeSession", session });
    for (const request of [...this.#requests.values()]) {
      if (request.command.session !== session || request.batch === undefined) continue;
      if (request.command.op === "claim") this.#reject(request, refusal("closed", undefined));
      else request.endsAt = Math.min(request.endsAt, monotonicNow() + CLOSING_MS);
    }
    if (this.#thread?.ready === false) this.#openedAt = monotonicNow() + CLOSING_MS - OPENING_MS;
    this.#watchPatience();
  }

  /** Gives the client back; the last one to do so ends the engine, which takes nothing along. */
  async release(): Promise<void> {
    this.#users--;
    if (this.#users > 0) return;
    if (clients.get(this.#directory) === this) clients.delete(this.#directory);
    this.#watch.disarm();
    clearTimeout(this.#patienceTimer);
    const thread = this.#thread;
    if (thread === undefined) return;
    Atomics.store(this.#signals, SIGNAL.cancelled, 1);
    this.#post({ kind: "shutdown" });
    thread.worker.ref();
    await thread.exited;
  }
}

function refusal(refused: "lost" | "aborted" | "closed", signal: AbortSignal | undefined): unknown {
  switch (refused) {
    case "lost":
      return new LeaseExpiredError(
        "This delivery no longer holds the job: its lease ended, or it was settled already. Nothing was changed.",
      );
    case "aborted":
      return signal?.reason;
    case "closed":
      return new QueueClosedError("The queue was closed.");
  }
}

function engineDied(directory: string, sent: boolean, cause: unknown): StorageError {
  const message = `The storage thread of ${directory} ended unexpectedly; the next operation starts a new one.`;
  return new StorageError("IO", message, { outcome: sent ? "unknown" : "failed", cause });
}

function revive({ code, message, outcome, cause }: ErrorOnWire): StorageError {
  if (cause === undefined) return new StorageError(code, message, { outcome });
  return new StorageError(code, message, {
    outcome,
    cause: Object.assign(new Error(cause.message), { name: cause.name }),
  });
}

let warned = false;

function warnOfUnsafeSqlite(driver: string, version: string): void {
  if (warned) return;
  warned = true;
  process.emitWarning(
    `${driver} carries SQLite ${version}, which can corrupt a database that several processes write. ` +
      "Upgrade to Node 22.22.3, 24.15 or newer, or install better-sqlite3@~12.11.",
    { type: "LocalQueueWarning", code: "LOCALQUEUE_UNSAFE_SQLITE" },
  );
}
