import { registered } from "../api/index.js";

export class SimpleSpanProcessor {
  #exporter;

  constructor(exporter) {
    this.#exporter = exporter;
  }

  onEnd(span) {
    this.#exporter.export([span], () => {});
  }
}

export class NodeTracerProvider {
  constructor({ spanProcessors }) {
    registered.processors = spanProcessors;
  }

  register({ contextManager }) {
    registered.contextManager = contextManager;
  }

  async shutdown() {}
}
