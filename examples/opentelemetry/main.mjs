// Two processes whose spans make one trace: `node main.mjs put ./data`, then `node main.mjs work ./data`.
import { trace } from "@opentelemetry/api";
import { NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { SimpleQueue, Worker } from "localqueue";
import { ActiveContext } from "./active-context.mjs";
import { traceQueues } from "./tracing.mjs";

const [, , command, location] = process.argv;

/** Prints each span; a program would send them to a collector. */
const exporter = {
  export(spans, done) {
    for (const span of spans) {
      const { name, parentSpanContext, links, attributes } = span;
      const { traceId, spanId } = span.spanContext();
      const linked = links.map(({ context }) => context.spanId);
      console.log(JSON.stringify({ name, traceId, spanId, parent: parentSpanContext?.spanId, linked, attributes }));
    }
    done({ code: 0 });
  },
  shutdown: async () => {},
};

const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
const contextManager = new ActiveContext();
provider.register({ contextManager });
traceQueues(contextManager.store);

const tracer = trace.getTracer("example");
const queue = new SimpleQueue(location, { name: "orders" });

if (command === "put") {
  await tracer.startActiveSpan("checkout", async (span) => {
    await queue.put({ order: 1 });
    span.end();
  });
} else {
  const mails = new SimpleQueue(location, { name: "mails" });
  const worker = new Worker(queue, async (job) => {
    // Whatever starts a span in here, also after an await, has the handler's span as its parent.
    await tracer.startActiveSpan("charge", async (span) => {
      await mails.put({ receiptFor: job.data.order });
      span.end();
    });
  });
  await worker.runOnce();
  await mails.close();
}
await queue.close();
await provider.shutdown();
