import type { Entry } from "../storage.ts";
import type { Command, EntryOnWire, ToEngine } from "./protocol.ts";

/** A batch ends at so many commands or bytes; what is larger travels alone. */
const BATCH_COMMANDS = 1000;
const BATCH_BYTES = 1024 * 1024;
/** Payloads from this size on are not copied together but handed over one by one. */
const LARGE_BYTES = 64 * 1024;
/** What an entry costs beside its payload, roughly; without it, a batch of many small ones would take long. */
export const ENTRY_BYTES = 256;
const FIRST_BYTES = 16 * 1024;

/** Memory of a batch that was sent, for the next one: making it anew for every put keeps the garbage collector busy. */
let spare: Buffer | undefined;

const encoder = new TextEncoder();

/**
 * Commands on their way to the engine, with the payloads in memory of our own: whatever callers do to their buffers
 * after the call, what was passed is what is stored.
 */
export class OutgoingBatch {
  readonly commands: Command[] = [];
  readonly #transfer: ArrayBuffer[] = [];
  #memory: Buffer | undefined;
  #used = 0;
  #bytes = 0;

  get full(): boolean {
    return this.commands.length >= BATCH_COMMANDS || this.#bytes >= BATCH_BYTES;
  }

  /** Whether a command of this size may join: a large one travels alone. */
  fits(bytes: number): boolean {
    return this.commands.length === 0 || this.#bytes + bytes <= BATCH_BYTES;
  }

  /** Copies the payloads; returns them as they will travel, and their size. */
  encode(entries: readonly Entry[]): { entries: EntryOnWire[]; bytes: number } {
    let bytes = 0;
    const encoded = entries.map(({ payload, jobId, delayMs, maxAttempts }) => {
      const onWire = this.#copy(payload);
      bytes += onWire.length + ENTRY_BYTES;
      return { payload: onWire, jobId: jobId ?? null, delayMs, maxAttempts };
    });
    this.#bytes += bytes;
    return { entries: encoded, bytes };
  }

  #copy(payload: Uint8Array | string): EntryOnWire["payload"] {
    if (payload.length >= LARGE_BYTES) {
      const own = typeof payload === "string" ? encoder.encode(payload) : Uint8Array.prototype.slice.call(payload);
      this.#transfer.push(own.buffer as ArrayBuffer);
      return own;
    }
    const offset = this.#used;
    if (typeof payload === "string") {
      this.#used += this.#reserve(payload.length * 3).write(payload, offset);
    } else {
      this.#reserve(payload.length).set(payload, offset);
      this.#used += payload.length;
    }
    return { offset, length: this.#used - offset };
  }

  /** The memory, with room for so many bytes more. */
  #reserve(bytes: number): Buffer {
    const former = this.#memory ?? spare ?? Buffer.from(new ArrayBuffer(FIRST_BYTES));
    if (this.#memory === undefined) spare = undefined;
    if (this.#used + bytes <= former.length) {
      this.#memory = former;
    } else {
      this.#memory = Buffer.from(new ArrayBuffer(Math.max(former.length * 2, this.#used + bytes)));
      this.#memory.set(former.subarray(0, this.#used));
    }
    return this.#memory;
  }

  withdraw(id: number): void {
    const index = this.commands.findIndex((command) => command.id === id);
    if (index >= 0) this.commands.splice(index, 1);
  }

  send(post: (message: ToEngine, transfer: ArrayBuffer[]) => void): void {
    const { commands } = this;
    if (this.#memory === undefined) {
      post({ kind: "batch", commands }, this.#transfer);
      return;
    }
    spare = this.#memory;
    const memory = this.#memory.buffer.slice(0, this.#used) as ArrayBuffer;
    post({ kind: "batch", commands, memory }, [memory, ...this.#transfer]);
  }
}
