import fs from "node:fs";
import { onAbort } from "../../abort.ts";
import { QueueClosedError } from "../../errors.ts";
import { clearTimeout, setTimeout } from "../../timers.ts";
import { StorageThread } from "../storage-thread.ts";
import { locationError } from "./files.ts";
import { awaitOutside } from "./leaving.ts";
import { END, SIGNAL, SIGNALS } from "./protocol.ts";
import { engineDied, revive } from "./refusals.ts";
import type { FromSide, TaskInput, TaskName, TaskResult, ToSide } from "./side.ts";

/** How long a thread for quick tasks is kept after its last one. */
const KEEP_MS = 60_000;

export interface LongTaskOptions {
  /** Ends the task early, where it can be ended; the call then rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: unknown) => void) | undefined;
}

/**
 * The threads beside the engine of one database. Quick tasks share one that is kept for a while; each long task has one
 * of its own. The engine must have opened the database before (it creates and migrates it), and be ended after them.
 */
export class SideThreads {
  readonly #directory: string;
  readonly #keepMs: number;
  readonly #running = new Set<SideThread>();
  /**
   * Descriptors of the directory, for `assertOneLibrary`. They stay as long as the engine does: so may those of the
   * file, which SQLite closes only when it holds no lock on it any more.
   */
  readonly #marks: number[] = [];
  #kept: SideThread | undefined;

  constructor(directory: string, { keepMs = KEEP_MS }: { readonly keepMs?: number } = {}) {
    this.#directory = directory;
    this.#keepMs = keepMs;
  }

  /** How many threads there are. */
  get size(): number {
    return this.#running.size;
  }

  /** For what takes milliseconds. Rejects with `StorageError`. */
  async quick<N extends TaskName>(name: N, input: TaskInput<N>): Promise<TaskResult<N>> {
    if (this.#kept?.ended !== false) this.#kept = this.#start(this.#keepMs);
    return (await this.#kept.ask(name, input)) as TaskResult<N>;
  }

  /** For what may take long. Rejects with `StorageError` or `signal.reason`. */
  async long<N extends TaskName>(
    name: N,
    input: TaskInput<N>,
    { signal, onProgress }: LongTaskOptions = {},
  ): Promise<TaskResult<N>> {
    signal?.throwIfAborted();
    const thread = this.#start(0);
    const forget = signal && onAbort(signal, () => thread.cancel());
    try {
      return (await thread.ask(name, input, onProgress)) as TaskResult<N>;
    } catch (error) {
      throw signal?.aborted ? signal.reason : error;
    } finally {
      forget?.();
    }
  }

  #start(keepMs: number): SideThread {
    if (this.#marks.length <= this.#running.size) this.#marks.push(openDirectory(this.#directory));
    const thread = new SideThread(this.#directory, keepMs, () => this.#running.delete(thread));
    this.#running.add(thread);
    return thread;
  }

  /** Blocks until all of them are outside SQLite, for good. */
  leaveSqlite(): void {
    for (const thread of this.#running) thread.leaveSqlite();
  }

  /** Ends them all, long tasks early. */
  async end(): Promise<void> {
    await Promise.all(Array.from(this.#running, (thread) => thread.end()));
    for (const mark of this.#marks.splice(0)) fs.closeSync(mark);
  }
}

function openDirectory(directory: string): number {
  try {
    return fs.openSync(directory, "r");
  } catch (error) {
    throw locationError(directory, error);
  }
}

interface Call {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly onProgress: ((progress: unknown) => void) | undefined;
}

/** One running thread beside the engine. */
class SideThread {
  readonly #directory: string;
  readonly #keepMs: number;
  readonly #signals = new Int32Array(new SharedArrayBuffer(SIGNALS * 4));
  readonly #thread: StorageThread;
  readonly #calls = new Map<number, Call>();
  #ids = 0;
  #idle: ReturnType<typeof setTimeout> | undefined;
  /** Whether it takes no more tasks. */
  ended = false;

  constructor(directory: string, keepMs: number, onEnded: () => void) {
    this.#directory = directory;
    this.#keepMs = keepMs;
    this.#thread = new StorageThread(
      () => new URL("./side.js", import.meta.url),
      { directory, signals: this.#signals },
      {
        message: (message) => this.#receive(message as FromSide),
        ended: (cause) => {
          onEnded();
          this.#lost(cause);
        },
      },
    );
  }

  ask(name: TaskName, input: unknown, onProgress?: (progress: unknown) => void): Promise<unknown> {
    return new Promise((resolve, reject) => {
      clearTimeout(this.#idle);
      const id = ++this.#ids;
      this.#post({ id, name, input });
      this.#calls.set(id, { resolve, reject, onProgress });
      this.#thread.keepAlive(true);
    });
  }

  #post(message: ToSide): void {
    this.#thread.post(message);
  }

  #receive(message: FromSide): void {
    const call = this.#calls.get(message.id);
    if (call === undefined) return;
    if ("progress" in message) {
      call.onProgress?.(message.progress);
      return;
    }
    this.#calls.delete(message.id);
    if (this.#calls.size === 0 && !this.ended) this.#rest();
    if ("error" in message) call.reject(revive(message.error));
    else call.resolve(message.result);
  }

  #rest(): void {
    this.#thread.keepAlive(false);
    if (this.#keepMs === 0) this.#finish();
    else this.#idle = setTimeout(() => this.#finish(), this.#keepMs).unref();
  }

  /** It ends as soon as it has done what it was asked for. */
  #finish(): void {
    clearTimeout(this.#idle);
    this.ended = true;
    this.#post("end");
  }

  cancel(): void {
    Atomics.store(this.#signals, SIGNAL.end, END.closing);
  }

  leaveSqlite(): void {
    awaitOutside(this.#signals);
  }

  async end(): Promise<void> {
    this.cancel();
    if (!this.ended) this.#finish();
    await this.#thread.ending();
  }

  #lost(cause: unknown): void {
    clearTimeout(this.#idle);
    const asked = this.ended;
    this.ended = true;
    for (const call of this.#calls.values()) {
      call.reject(asked ? new QueueClosedError("The queue was closed.") : engineDied(this.#directory, false, cause));
    }
    this.#calls.clear();
  }
}
