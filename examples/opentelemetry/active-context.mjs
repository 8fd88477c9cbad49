import { AsyncLocalStorage } from "node:async_hooks";
import { ROOT_CONTEXT } from "@opentelemetry/api";

/** A context manager for OpenTelemetry whose store can be bound to a channel: that of its SDK does not give it out. */
export class ActiveContext {
  store = new AsyncLocalStorage();

  active() {
    return this.store.getStore() ?? ROOT_CONTEXT;
  }

  with(context, callback, thisArg, ...args) {
    return this.store.run(context, () => callback.apply(thisArg, args));
  }

  bind(context, target) {
    if (typeof target !== "function") return target;
    const manager = this;
    return function bound(...args) {
      return manager.with(context, target, this, ...args);
    };
  }

  enable() {
    return this;
  }

  disable() {
    return this;
  }
}
