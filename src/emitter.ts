import { functionOf, unknownName } from "./options.ts";
import { describeThrown } from "./thrown.ts";
import { warn } from "./warning.ts";

type Listener<Payload> = (payload: Payload) => unknown;
type Listeners<Events> = { [Name in keyof Events]: readonly Listener<Events[Name]>[] };

/** Typed events whose listeners can do no harm: what they throw, or reject with, becomes a process warning. */
export class Emitter<Events extends object> {
  readonly #listeners: Listeners<Events>;

  constructor(none: { readonly [Name in keyof Events]: readonly [] }) {
    this.#listeners = { ...none };
  }

  /** Returns the function that takes the listener off again. */
  on<Name extends keyof Events & string>(name: Name, listener: Listener<Events[Name]>): () => void {
    if (!Object.hasOwn(this.#listeners, name)) throw unknownName("event", String(name), Object.keys(this.#listeners));
    // A function of our own, so that a listener that was added twice is taken off once.
    const checked = functionOf<Listener<Events[Name]>>()(listener, "listener");
    const call: Listener<Events[Name]> = (payload) => checked(payload);
    this.#listeners[name] = [...this.#listeners[name], call];
    return () => {
      this.#listeners[name] = this.#listeners[name].filter((other) => other !== call);
    };
  }

  has(name: keyof Events): boolean {
    return this.#listeners[name].length > 0;
  }

  emit<Name extends keyof Events & string>(name: Name, payload: Events[Name]): void {
    for (const listener of this.#listeners[name]) void callSafely(name, listener, payload);
  }
}

/** Calls a function of the program's, whose failure is no concern of ours, nor to be passed over in silence. */
export async function callSafely<Payload>(name: string, listener: Listener<Payload>, payload: Payload): Promise<void> {
  try {
    await listener(payload);
  } catch (error) {
    const stack = error instanceof Error ? error.stack : undefined;
    warn("LOCALQUEUE_LISTENER_FAILED", `A listener of "${name}" failed: ${describeThrown(error)}`, stack);
  }
}
