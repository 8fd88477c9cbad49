import { createHash, randomUUID } from "node:crypto";
import { clearTimeout, monotonicNow, setTimeout } from "../../timers.ts";
import type { PostgresTarget } from "../postgres-target.ts";
import { forOtherThread, openSession, type Session } from "./connect.ts";
import { cut, query } from "./rows.ts";
import { longer } from "./runner.ts";

/** A queue is told of once in so long. */
const GAP_MS = 10;
/** How often to look all the same, and how often where no notices come: a pooler of connections does not pass them on. */
const POLL_MS = { heard: 1000, deaf: 200 } as const;
/** So long a notice of our own may take to come back. */
const ECHO_MS = 2000;
const RECONNECT_MS = 250;
/** A machine may have been too slow for an echo in time. */
const LISTEN_AGAIN_MS = 60_000;

export interface NoticesOptions {
  readonly target: PostgresTarget;
  /** Runs a statement on some connection, outside of transactions. */
  readonly send: (text: string, values: readonly unknown[]) => Promise<unknown>;
  /** Something happened to a queue, or may have happened to any (`undefined`). */
  readonly heard: (queue: string | undefined) => void;
}

/** What processes tell each other: that there is something in a queue. A hint, on which nothing depends. */
export class Notices {
  readonly #options: NoticesOptions;
  readonly #channel: string;
  /** In our own notices. */
  readonly #self = randomUUID();
  #session: Session | undefined;
  #listening = false;
  #ended = false;
  /** Whether notices arrive at all. */
  #hears = false;
  #reconnectMs = RECONNECT_MS;
  readonly #due = new Set<string>();
  #sentAt = Number.NEGATIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #sending: Promise<unknown> = Promise.resolve();

  constructor(options: NoticesOptions) {
    this.#options = options;
    const digest = createHash("sha256").update(options.target.schema).digest("hex");
    this.#channel = `localqueue_${digest.slice(0, 24)}`;
  }

  /** How often whoever waits is to look by itself. */
  get pollMs(): number {
    return this.#hears ? POLL_MS.heard : POLL_MS.deaf;
  }

  /** To be called when somebody waits for something that others may do. */
  listen(): void {
    if (this.#listening || this.#ended) return;
    this.#listening = true;
    void this.#listen();
  }

  async #listen(): Promise<void> {
    try {
      const session = await openSession(await forOtherThread(this.#options.target));
      session.client.unref();
      if (this.#ended) {
        await session.close();
        return;
      }
      this.#session = session;
      session.client.once("end", () => this.#lost(session));
      session.client.on("notification", ({ payload = "" }) => this.#receive(payload));
      await query(session.client, `LISTEN ${this.#channel}`);
      this.#reconnectMs = RECONNECT_MS;
      await this.#tell([""]);
      setTimeout(() => this.#judgeEcho(session), ECHO_MS).unref();
      // Before we listened anything may have happened.
      this.#options.heard(undefined);
    } catch {
      this.#lost(this.#session);
    }
  }

  /** Nothing came back: the connection to listen on is not one, and is given up. */
  #judgeEcho(session: Session): void {
    if (this.#hears || this.#session !== session) return;
    this.#session = undefined;
    // Through a pooler the server's connection would go on listening, for nobody.
    const forgotten = query(session.client, "UNLISTEN *").catch(ignore);
    forgotten.then(() => session.close()).catch(ignore);
    setTimeout(() => {
      if (!this.#ended) void this.#listen();
    }, LISTEN_AGAIN_MS).unref();
  }

  #lost(session?: Session): void {
    // One that was given up, or that another has followed.
    if (this.#ended || this.#session !== session) return;
    this.#session = undefined;
    this.#hears = false;
    if (session !== undefined) cut(session.client);
    setTimeout(() => {
      if (!this.#ended) void this.#listen();
    }, this.#reconnectMs).unref();
    this.#reconnectMs = longer(this.#reconnectMs);
  }

  #receive(payload: string): void {
    this.#hears = true;
    const [sender, queue = ""] = split(payload);
    if (sender !== this.#self && queue !== "") this.#options.heard(queue);
  }

  /** Others are to know, now or in a moment, that there is something in these queues. */
  announce(queues: Iterable<string>): void {
    for (const queue of queues) this.#due.add(queue);
    if (this.#due.size === 0 || this.#timer !== undefined) return;
    const ms = Math.max(0, this.#sentAt + GAP_MS - monotonicNow());
    if (ms > 0) this.#timer = setTimeout(() => this.#flush(), ms);
    else this.#flush();
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#due.size === 0) return;
    this.#sentAt = monotonicNow();
    const queues = [...this.#due];
    this.#due.clear();
    this.#sending = this.#tell(queues).catch(() => {});
  }

  #tell(queues: readonly string[]): Promise<unknown> {
    return this.#options.send("SELECT pg_notify($1, $2 || ' ' || queue) FROM unnest($3::text[]) AS queue", [
      this.#channel,
      this.#self,
      queues,
    ]);
  }

  /** What is still to be told is told. */
  async end(): Promise<void> {
    this.#flush();
    this.#ended = true;
    const session = this.#session;
    this.#session = undefined;
    await Promise.all([this.#sending, session?.close()]);
  }
}

function split(payload: string): [sender: string, queue: string] {
  const space = payload.indexOf(" ");
  return [payload.slice(0, space), payload.slice(space + 1)];
}

function ignore(): void {}
