import { onAbort } from "../../abort.ts";
import { StorageError } from "../../errors.ts";
import { Slots } from "../../slots.ts";
import { clearTimeout, monotonicNow, queueMicrotask, setImmediate, setTimeout } from "../../timers.ts";
import { warnOnce } from "../../warning.ts";
import { conflictOf, flooded, refusal, tooLarge } from "../refusals.ts";
import type { ConsumerRecord } from "../slot-consumer.ts";
import type { Tally } from "../tally.ts";
import { DirectoryWatch } from "./changes.ts";
import { EngineThread, rouse, showAlive, wake } from "./engine-thread.ts";
import { type Gauges, newGauges } from "./gauges.ts";
import { OutgoingBatch } from "./outgoing.ts";
import { type Answer, CLOSING, type Command, END, type FromEngine, SIGNAL, SIGNALS } from "./protocol.ts";
import { engineDied, revive } from "./refusals.ts";
import { CLOSING_MS, type Demand, givesUpAt, LEAST_PATIENCE_MS, patienceFrom, type Request } from "./request.ts";
import { SideThreads } from "./side-thread.ts";

/** Enough to keep the engine busy; what waits beyond can still be withdrawn. */
const BATCHES_IN_FLIGHT = 2;
/** What callers may have under way before they are refused: a producer that never waits must not fill the memory. */
const BUFFERED_BYTES = 256 * 1024 * 1024;
/** What an entry costs beside its payload, roughly. */
const COMMAND_BYTES = 256;
const TICK_MS = 250;
const RESTART_MS = { first: 50, longest: 5000 };

const clients = new Map<string, Client>();

/**
 * This JavaScript thread's side of one database: gathers commands into batches, keeps the engine's thread running and
 * hands its answers back. There is one per directory, shared by every queue and worker on it.
 */
export class Client {
  /** Threads for what only reads, or takes long. */
  readonly side: SideThreads;
  /** What the engine counts. */
  readonly gauges: Gauges = newGauges();
  readonly #directory: string;
  readonly #signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
  readonly #watch: DirectoryWatch;
  readonly #requests = new Slots<Request>();
  readonly #consumers = new Map<number, ConsumerRecord>();
  #batches: OutgoingBatch[] = [];
  #inFlight = 0;
  #flushing = false;
  #buffered = 0;
  #thread: EngineThread | undefined;
  /** Whether the database is open. */
  #ready = false;
  /** When the engine was started, or last finished a batch. */
  #progressAt = 0;
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
    this.side = new SideThreads(directory);
    this.#watch = new DirectoryWatch(directory, this.#signals, () => wake(this.#signals));
  }

  /** The client of a directory; to be given back by `release`. */
  static acquire(directory: string): Client {
    let client = clients.get(directory);
    if (client === undefined) {
      client = new Client(directory);
      if (clients.size === 0) process.on("exit", leaveSqlite);
      clients.set(directory, client);
    }
    client.#users++;
    return client;
  }

  /** Asks the engine for something; `tally` counts it until it is answered. */
  request<A extends Answer, Result>(demand: Demand<A, Result>, tally: Tally): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      const { command, bytes = 0, patienceMs, signal, read } = demand;
      if (this.#lost !== undefined) throw this.#lost;
      if (signal?.aborted) throw signal.reason;
      const cost = bytes + COMMAND_BYTES;
      if (cost > BUFFERED_BYTES) throw tooLarge(bytes, BUFFERED_BYTES);
      if (this.#buffered + cost > BUFFERED_BYTES) throw flooded(this.#directory, BUFFERED_BYTES);
      if (this.#requests.size === 0 && this.#ready) rouse(this.#signals);
      const batch = this.#batchFor(bytes);
      const askedAt = monotonicNow();
      const id = this.#requests.add({
        command,
        signal,
        read,
        tally,
        bytes: cost,
        askedAt,
        ...patienceFrom(askedAt, patienceMs),
        closesBy: undefined,
        resolve,
        reject,
        forgetSignal: signal && onAbort(signal, () => this.#abort(id)),
        batch,
      });
      command.id = id;
      batch.add(command, bytes);
      tally.begin();
      this.#buffered += cost;
      if (!this.#flushing) {
        this.#flushing = true;
        queueMicrotask(() => this.#flush());
      }
    });
  }

  #batchFor(bytes: number): OutgoingBatch {
    const last = this.#batches.at(-1);
    if (last?.takes(bytes)) return last;
    const batch = new OutgoingBatch();
    this.#batches.push(batch);
    return batch;
  }

  /** Sends what may be sent; the rest goes as the engine finishes batches. */
  #flush(): void {
    this.#flushing = false;
    if (this.#thread === undefined && this.#requests.size > 0) this.#tryToStart();
    while (this.#ready && this.#inFlight < BATCHES_IN_FLIGHT) {
      const batch = this.#batches.shift();
      if (batch === undefined) break;
      if (batch.commands.length === 0) continue;
      this.#inFlight++;
      this.#hurry(batch.commands);
      this.#thread?.post({ kind: "batch", commands: batch.commands });
    }
    if (this.#batches.length > 0 && this.#patienceTimer === undefined) this.#watchPatience();
    // Only now: the engine need not wait for that.
    this.#keepAlive();
    this.#keepTicking();
  }

  /** What was waited here is taken off what may be waited there. */
  #hurry(commands: Command[]): void {
    const now = monotonicNow();
    for (let i = 0; i < commands.length; i++) {
      const command = commands[i] as Command;
      const request = this.#requests.get(command.id) as Request;
      request.batch = undefined;
      const waitedMs = Math.floor(now - request.askedAt);
      if (waitedMs < 1 && request.closesBy === undefined) continue;
      const most = request.closesBy === undefined ? Number.POSITIVE_INFINITY : CLOSING_MS;
      const lockMs = Math.max(0, Math.min(command.lockMs - waitedMs, most));
      commands[i] =
        (command.op === "claim" || command.op === "put") && (command.waitMs ?? 0) > 0
          ? { ...command, lockMs, waitMs: Math.max(0, (command.waitMs ?? 0) - waitedMs) }
          : { ...command, lockMs };
    }
  }

  /** Shows the engine that this thread is not stalled, for as long as that matters. */
  #keepTicking(): void {
    if (this.#ticking) return;
    this.#ticking = true;
    const beat = (): void => {
      showAlive(this.#signals);
      if (Atomics.load(this.#signals, SIGNAL.stalled) === 1) wake(this.#signals);
      this.#ticking = this.#thread !== undefined && (this.#requests.size > 0 || this.#consumers.size > 0);
      if (this.#ticking) setTimeout(beat, TICK_MS).unref();
    };
    beat();
  }

  #settled(request: Request): void {
    this.#requests.delete(request.command.id);
    this.#buffered -= request.bytes;
    request.forgetSignal?.();
    request.tally.end();
    if (this.#requests.size === 0) this.#keepAlive();
  }

  /** A handler may wait for news of its lease and for nothing else that would keep the process alive. */
  #keepAlive(): void {
    this.#thread?.keepAlive(this.#requests.size > 0 || this.#consumers.size > 0);
  }

  #reject(request: Request, reason: unknown): void {
    request.batch?.withdraw(request.command);
    this.#settled(request);
    request.reject(reason);
  }

  #abort(id: number): void {
    const request = this.#requests.get(id);
    if (request === undefined) return;
    if (request.batch !== undefined) this.#reject(request, request.signal?.reason);
    // The engine alone ends what it was asked: it may just have claimed a job.
    else this.#thread?.post({ kind: "abort", id });
  }

  /** Gives up on what could not be sent in time, because the engine is busy, locked out or not open yet. */
  #watchPatience(): void {
    clearTimeout(this.#patienceTimer);
    this.#patienceTimer = undefined;
    const now = monotonicNow();
    let next = Number.POSITIVE_INFINITY;
    for (const request of this.#requests.list()) {
      if (request.batch === undefined) continue;
      if (!this.#ready && (request.closesBy ?? Number.POSITIVE_INFINITY) <= now) this.#hurryOpening();
      const endsAt = givesUpAt(request, this.#ready, this.#progressAt);
      if (endsAt > now) next = Math.min(next, endsAt);
      else this.#reject(request, new StorageError("BUSY", `${this.#directory} was locked or busy for too long.`));
    }
    if (!Number.isFinite(next)) return;
    // Those that come meanwhile may be more impatient.
    const ms = Math.min(next - now + 1, LEAST_PATIENCE_MS);
    // After a long block of the event loop the engine's answers, which wait too, are read first.
    this.#patienceTimer = setTimeout(() => setImmediate(() => this.#watchPatience()), ms);
  }

  /** Ends a wait for a lock while opening, but not an opening that is merely slow. */
  #hurryOpening(): void {
    if (this.#users === 1) Atomics.store(this.#signals, SIGNAL.end, END.closing);
  }

  #tryToStart(): void {
    try {
      this.#start();
    } catch (error) {
      this.#ended(error);
    }
  }

  #start(): void {
    const thread = new EngineThread(this.#directory, this.#signals, this.gauges, {
      message: (message) => this.#receive(message),
      ended: (error) => this.#ended(error),
    });
    this.#thread = thread;
    this.#progressAt = monotonicNow();
    for (const [consumer, record] of this.#consumers) this.#announce(consumer, record);
    this.#keepAlive();
    this.#keepTicking();
  }

  #receive(message: FromEngine): void {
    switch (message.kind) {
      case "ready":
        this.#ready = true;
        this.#progressAt = monotonicNow();
        this.#restartMs = RESTART_MS.first;
        for (const { code, message: text } of message.warnings) warnOnce(code, text);
        this.#flush();
        break;
      case "unopened":
        this.#openError = revive(message.error);
        break;
      case "reply":
        this.#inFlight -= message.batches;
        if (message.batches > 0) this.#progressAt = monotonicNow();
        for (const news of message.news) this.#consumers.get(news.consumer)?.tell(news);
        for (const answer of message.answers) this.#answer(answer);
        if (message.watch && this.#requests.size > 0) this.#watch.arm();
        // Once nobody uses it any more, no thread may be started that nobody would end.
        if (message.moveLog && this.#users > 0) void this.#moveLog();
        if (this.#batches.length > 0) this.#flush();
        break;
    }
  }

  async #moveLog(): Promise<void> {
    try {
      await this.side.quick("moveLog", undefined);
    } catch {
      // The engine does it by itself, when it has waited for too long.
      return;
    }
    this.#thread?.post({ kind: "logMoved" });
  }

  #answer(answer: Answer): void {
    const request = this.#requests.get(answer.id);
    if (request === undefined) return;
    this.#settled(request);
    if ("error" in answer) {
      const error = revive(answer.error);
      if (error.code === "FILE_REPLACED") this.#lost = error;
      request.reject(error);
    } else if ("refused" in answer) {
      request.reject(refusal(answer.refused, request.signal));
    } else if ("conflict" in answer) {
      request.reject(conflictOf(answer.conflict));
    } else {
      request.resolve(request.read(answer as never) as never);
    }
  }

  /** The thread is gone: as asked, because the database could not be opened, or because it died. */
  #ended(cause: unknown): void {
    const openError = this.#openError;
    this.#thread = undefined;
    this.#ready = false;
    this.#inFlight = 0;
    this.#openError = undefined;
    this.#watch.disarm();
    for (const request of this.#requests.list()) {
      this.#reject(request, openError ?? engineDied(this.#directory, request.batch === undefined, cause));
    }
    this.#batches = [];
    const holding = [...this.#consumers.values()].some(({ held }) => held().length > 0);
    if (!holding || this.#users === 0) return;
    setTimeout(() => {
      if (this.#thread === undefined && this.#users > 0) this.#tryToStart();
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
    this.#thread?.post({ kind: "consume", consumer, settings, held: held() });
    this.#keepAlive();
    this.#keepTicking();
  }

  get consumers(): Iterable<ConsumerRecord> {
    return this.#consumers.values();
  }

  dismiss(consumer: number): void {
    this.#consumers.delete(consumer);
    this.#thread?.post({ kind: "dismiss", consumer });
    this.#keepAlive();
  }

  /** Ends a session's waits for room, those of puts that were not sent yet, too. */
  stopWaiting(session: number): void {
    this.#thread?.post({ kind: "stopWaiting", session });
    for (const { command, batch } of this.#requests.list()) {
      if (command.op === "put" && command.origin.session === session && batch !== undefined) command.waitMs = CLOSING;
    }
  }

  /** Withdraws a session's waiting claims at once, and bounds what else it has under way. */
  closeSession(session: number): void {
    this.#thread?.post({ kind: "closeSession", session });
    const latest = monotonicNow() + CLOSING_MS;
    for (const request of this.#requests.list()) {
      if (request.command.origin.session !== session || request.batch === undefined) continue;
      if (["claim", "sweep"].includes(request.command.op)) this.#reject(request, refusal("closed", undefined));
      request.closesBy = latest;
    }
    if (this.#batches.length > 0) this.#watchPatience();
  }

  /** Blocks until its threads are outside SQLite, for good. */
  leaveSqlite(): void {
    this.#thread?.leaveSqlite();
    this.side.leaveSqlite();
  }

  /** Gives the client back; the last one to do so ends the engine. */
  async release(): Promise<void> {
    this.#users--;
    if (this.#users > 0) return;
    if (clients.get(this.#directory) === this) clients.delete(this.#directory);
    if (clients.size === 0) process.off("exit", leaveSqlite);
    this.#watch.disarm();
    clearTimeout(this.#patienceTimer);
    await this.side.end();
    await this.#thread?.shutDown();
  }
}

/** At the end of the process: a thread that is ended inside better-sqlite3 takes the process down with SIGABRT. */
function leaveSqlite(): void {
  for (const client of clients.values()) client.leaveSqlite();
}
