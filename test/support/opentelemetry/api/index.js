// As much of @opentelemetry/api, and as little, as examples/opentelemetry uses: tests run that without installing it.
import { randomBytes } from "node:crypto";

export const SpanKind = { PRODUCER: 3, CONSUMER: 4 };
export const SpanStatusCode = { ERROR: 2 };
export const ROOT_CONTEXT = Object.freeze({ span: undefined });

export const registered = { contextManager: undefined, processors: [] };

class Span {
  attributes = {};
  #context;

  constructor(name, { links = [], attributes = {} }, parent) {
    this.name = name;
    this.links = links;
    Object.assign(this.attributes, attributes);
    this.parentSpanContext = parent?.spanContext();
    const traceId = this.parentSpanContext?.traceId ?? randomBytes(16).toString("hex");
    this.#context = { traceId, spanId: randomBytes(8).toString("hex") };
  }

  spanContext() {
    return this.#context;
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  recordException(error) {
    this.attributes["exception.message"] = error.message;
  }

  setStatus({ code }) {
    this.attributes["status"] = code;
  }

  end() {
    for (const processor of registered.processors) processor.onEnd(this);
  }
}

export const context = {
  active: () => registered.contextManager?.active() ?? ROOT_CONTEXT,
  with: (active, callback) => registered.contextManager.with(active, callback),
};

const tracer = {
  startSpan: (name, options = {}, parent = context.active()) => new Span(name, options, parent.span),
  startActiveSpan(name, callback) {
    const span = tracer.startSpan(name);
    return context.with({ span }, () => callback(span));
  },
};

export const trace = {
  getTracer: () => tracer,
  setSpan: (_, span) => ({ span }),
  getSpanContext: ({ span }) => span?.spanContext(),
};

/** W3C: https://www.w3.org/TR/trace-context/ */
export const propagation = {
  inject({ span }, carrier) {
    const { traceId, spanId } = span.spanContext();
    carrier.traceparent = `00-${traceId}-${spanId}-01`;
  },
  extract(onto, { traceparent }) {
    const [, traceId, spanId] = traceparent?.split("-") ?? [];
    return traceId === undefined ? onto : { span: { spanContext: () => ({ traceId, spanId }) } };
  },
};
