// Claims jobs and does with each what it asks for, by hand or with a Worker, until its input is closed.
import { LeaseExpiredError, QueueClosedError, Reject, RetryPolicy, SimpleQueue, Worker } from "localqueue";
import { input, say, told } from "../../programs/lines.mjs";
import { History } from "./history.mjs";

const history = new History(input.history);
const queue = new SimpleQueue(input.location, { leaseMs: input.leaseMs });

/** How this delivery is to be settled. */
function verdict({ data: { does }, attempt }) {
  if (does !== "nack once") return does;
  return attempt === 1 ? "nack" : "ack";
}

function about({ data, id, attempt, receipt }) {
  return { job: data.jobId, id, attempt, receipt };
}

async function byHand() {
  for (;;) {
    history.invoke("claim");
    const job = await queue.get();
    history.ok("claim", about(job));
    const op = verdict(job);
    history.invoke(op, about(job));
    try {
      if (op === "ack") await queue.ack(job);
      else if (op === "nack") await queue.nack(job, { lastError: "once more" });
      else await queue.fail(job, { lastError: "no use" });
      history.ok(op, about(job));
    } catch (error) {
      if (!(error instanceof LeaseExpiredError)) throw error;
      history.refused(op, about(job));
    }
  }
}

async function withWorker() {
  const handle = (job) => {
    history.ok("claim", about(job));
    const op = verdict(job);
    history.invoke(op, about(job));
    if (op === "nack") throw new Error("once more");
    if (op === "fail") throw new Reject("no use");
  };
  const worker = new Worker(queue, handle, { concurrency: input.concurrency, retry: RetryPolicy.immediate() });
  worker.on("job:acked", ({ job }) => history.ok("ack", about(job)));
  worker.on("job:retried", ({ job }) => history.ok("nack", about(job)));
  worker.on("job:failed", ({ job }) => history.ok(verdict(job), about(job)));
  worker.on("lease:lost", ({ job }) => history.refused(verdict(job), about(job)));
  worker.on("error", ({ error }) => say("error", { error: `${error.name}: ${error.message}` }));
  await worker.run();
}

say("running");
const running = input.byHand ? byHand() : withWorker();
running.catch((error) => {
  if (error instanceof QueueClosedError) return;
  process.exitCode = 1;
  throw error;
});
for await (const _ of told());
await queue.close();
