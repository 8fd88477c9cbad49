import type { Origin } from "./protocol.ts";

/** What stands in a message for an origin: itself when it crosses for the first time, then its session's number. */
export type OriginOnWire = Origin | number;

/** The client's side: which origins the engine knows. An object in each message would take a third of its time. */
export class IntroducedOrigins {
  readonly #sessions = new Set<number>();

  pack(origin: Origin): OriginOnWire {
    if (this.#sessions.has(origin.session)) return origin.session;
    this.#sessions.add(origin.session);
    return origin;
  }

  /** The engine forgets it, too. What is still to be said in its name introduces it anew. */
  forget(session: number): void {
    this.#sessions.delete(session);
  }
}

/** The engine's side: the origins by their numbers. */
export class KnownOrigins {
  readonly #bySession = new Map<number, Origin>();

  unpack(origin: OriginOnWire): Origin {
    if (typeof origin === "number") return this.#bySession.get(origin) as Origin;
    this.#bySession.set(origin.session, origin);
    return origin;
  }

  forget(session: number): void {
    this.#bySession.delete(session);
  }
}
