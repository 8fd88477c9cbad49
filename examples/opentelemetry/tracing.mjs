// Spans for what is put and handled: the one of the handler is a child of the one of the put, and linked to it.
import { channel, subscribe } from "node:diagnostics_channel";
import { context, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";

const tracer = trace.getTracer("localqueue");
const spans = new WeakMap(); // the end of a put, or of a handler, is told with the same message as its beginning

/** `store` is the AsyncLocalStorage that holds OpenTelemetry's active context. */
export function traceQueues(store) {
  subscribe("localqueue:put", (message) => {
    const span = tracer.startSpan(`send ${message.queue}`, {
      kind: SpanKind.PRODUCER,
      attributes: attributesOf(message, "send"),
    });
    spans.set(message, span);
    const carrier = {};
    propagation.inject(trace.setSpan(context.active(), span), carrier);
    const { traceparent, tracestate = "" } = carrier;
    if (traceparent !== undefined) message.context = `${traceparent}\n${tracestate}`;
  });
  subscribe("localqueue:put:end", end);

  channel("localqueue:handler").bindStore(store, (message) => {
    const [traceparent, tracestate] = message.context?.split("\n") ?? [];
    const producer = propagation.extract(ROOT_CONTEXT, { traceparent, tracestate });
    const put = trace.getSpanContext(producer);
    const options = {
      kind: SpanKind.CONSUMER,
      attributes: attributesOf(message, "process"),
      links: put === undefined ? [] : [{ context: put }],
    };
    const span = tracer.startSpan(`process ${message.queue}`, options, producer);
    spans.set(message, span);
    return trace.setSpan(producer, span);
  });
  subscribe("localqueue:handler:end", end);
}

function attributesOf({ queue, attempt }, operation) {
  return {
    "messaging.system": "localqueue",
    "messaging.destination.name": queue,
    "messaging.operation.type": operation,
    ...(attempt !== undefined && { "localqueue.attempt": attempt }),
  };
}

function end(message) {
  const span = spans.get(message);
  if (span === undefined) return; // begun before `traceQueues` was called
  if (message.id !== undefined) span.setAttribute("messaging.message.id", String(message.id));
  if (message.error !== undefined) {
    span.recordException(message.error);
    span.setStatus({ code: SpanStatusCode.ERROR });
  }
  span.end();
}
