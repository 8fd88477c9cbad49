import fs from "node:fs";
import { DATABASE_FILE } from "./files.ts";
import { SIGNAL, WATCH } from "./protocol.ts";

/**
 * A hint that another process may have committed: a watch on the directory, closed at its first event. Left open while
 * we write ourselves it would cost a third of the event loop; the engine asks for it anew when it has nothing to do.
 */
export class DirectoryWatch {
  readonly #directory: string;
  readonly #signals: Int32Array;
  readonly #wake: () => void;
  #watcher: fs.FSWatcher | undefined;

  constructor(directory: string, signals: Int32Array, wake: () => void) {
    this.#directory = directory;
    this.#signals = signals;
    this.#wake = wake;
  }

  /** The engine looks once more after arming: what was committed before was not seen by the watch. */
  arm(): void {
    if (this.#watcher !== undefined) return;
    this.#watcher = this.#watch();
    // Without one the engine polls more often instead.
    Atomics.store(this.#signals, SIGNAL.watch, this.#watcher === undefined ? WATCH.unavailable : WATCH.armed);
    this.#wake();
  }

  /** `undefined`: out of watches, or none on this file system. */
  #watch(): fs.FSWatcher | undefined {
    // Deno opens and closes each file of which there is news, and thereby takes SQLite's locks on it away.
    if (process.versions["deno"] !== undefined) return undefined;
    try {
      const watcher = fs.watch(this.#directory, { persistent: false }, (_, file) => {
        if (file === null || file.startsWith(DATABASE_FILE)) this.#end(WATCH.off);
      });
      watcher.on("error", () => this.#end(WATCH.unavailable));
      return watcher;
    } catch {
      return undefined;
    }
  }

  disarm(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
    Atomics.store(this.#signals, SIGNAL.watch, WATCH.off);
  }

  #end(state: number): void {
    const watcher = this.#watcher;
    this.#watcher = undefined;
    Atomics.store(this.#signals, SIGNAL.watch, state);
    this.#wake();
    // Closing it takes longer than all the rest, and the engine need not wait for that.
    watcher?.close();
  }
}
