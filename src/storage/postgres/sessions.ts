import type { PostgresTarget } from "../postgres-target.ts";
import { openSession, type Session } from "./connect.ts";
import { cut } from "./rows.ts";

/** Enough for a batch of each kind at a time: more connections do not write faster. */
const MOST_SESSIONS = 4;

/** The few connections of one client. One that is idle does not keep the process alive. */
export class Sessions {
  readonly #target: PostgresTarget;
  #idle: Session[] = [];
  #open = 0;
  #waiting: (() => void)[] = [];
  #ended = false;

  constructor(target: PostgresTarget) {
    this.#target = target;
  }

  /** Uses a connection of its own; `work` says if it is not to be used any more. */
  async use<T>(work: (session: Session, spoil: () => void) => Promise<T>): Promise<T> {
    const session = await this.#acquire();
    let spoilt = false;
    try {
      return await work(session, () => {
        spoilt = true;
      });
    } finally {
      this.#release(session, spoilt);
    }
  }

  async #acquire(): Promise<Session> {
    for (;;) {
      const idle = this.#idle.pop();
      if (idle !== undefined) {
        idle.client.ref();
        return idle;
      }
      if (this.#open < MOST_SESSIONS) break;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#open++;
    try {
      const session = await openSession(this.#target);
      if (this.#target.pool === undefined) session.client.once("end", () => this.#forget(session));
      return session;
    } catch (error) {
      this.#open--;
      this.#next();
      throw error;
    }
  }

  #release(session: Session, spoilt: boolean): void {
    // A pool of the program's own wants its connections back.
    if (spoilt || this.#ended || this.#target.pool !== undefined) {
      this.#open--;
      if (spoilt) cut(session.client);
      void session.close(spoilt);
      // The others lead to the same server.
      if (spoilt) this.#drop();
    } else {
      session.client.unref();
      this.#idle.push(session);
    }
    this.#next();
  }

  /** An idle connection was ended by the server. */
  #forget(session: Session): void {
    const index = this.#idle.indexOf(session);
    if (index < 0) return;
    this.#idle.splice(index, 1);
    this.#open--;
    this.#next();
  }

  #drop(): void {
    const idle = this.#idle.splice(0);
    this.#open -= idle.length;
    for (const session of idle) {
      cut(session.client);
      void session.close(true);
    }
  }

  #next(): void {
    this.#waiting.shift()?.();
  }

  /** Nobody uses any of them any more. */
  async end(): Promise<void> {
    this.#ended = true;
    const idle = this.#idle.splice(0);
    this.#open -= idle.length;
    await Promise.all(idle.map((session) => session.close()));
  }
}
