/*
 * What a TypeScript program can say with the package, and what the compiler must not let it say. It is compiled and run
 * by package.test.ts against the installed package, as an ES module and as a CommonJS module; so it uses no `await` at
 * the top, and its name says neither.
 */
import {
  type AttemptOptions,
  type BackupOptions,
  type BackupProgress,
  type BackupReport,
  type ChannelMessages,
  type ClaimMessage,
  type DatabaseDiagnostics,
  DeduplicationConflictError,
  EmptyError,
  type EngineCounts,
  type Enqueued,
  EnqueueItem,
  type EnqueueItemOptions,
  type ErrorClass,
  type ErrorMessage,
  type ExponentialOptions,
  type FailedDetails,
  type FailedFilter,
  type FailedMessage,
  type FailOptions,
  type FailureReason,
  type FileFacts,
  type FindOptions,
  FullError,
  type Handler,
  type HandlerContext,
  type HandlerEndMessage,
  type HandlerMessage,
  type IntegrityMode,
  type IntegrityOptions,
  type IntegrityPart,
  type IntegrityProgress,
  type IntegrityReport,
  InvalidEventError,
  type Job,
  type JobInfo,
  type JobState,
  type JobsOptions,
  type JsonSerializer,
  jsonSerializer,
  type Lease,
  LeaseExpiredError,
  type LeaseLostMessage,
  type ListFailedOptions,
  type ListOptions,
  LocalQueueError,
  type LocalQueueErrorCode,
  type Location,
  type LongestRunning,
  type NackOptions,
  NoSubscribersError,
  NotFoundError,
  PayloadError,
  type PurgeOptions,
  type PutEndMessage,
  type PutMessage,
  type PutOptions,
  pythonJsonSerializer,
  QueueClosedError,
  type QueueDiagnostics,
  type QueueStats,
  Reject,
  type RejectOptions,
  type RetentionOptions,
  Retry,
  type RetryFunction,
  type RetryOptions,
  RetryPolicy,
  type RunOptions,
  type Serializer,
  type ServerFacts,
  type SettleMessage,
  SimpleQueue,
  type SimpleQueueOptions,
  type StorageDiagnostics,
  StorageError,
  type StorageErrorCode,
  type StorageOutcome,
  type WaitOptions,
  Worker,
  type WorkerEvents,
  type WorkerOptions,
} from "localqueue";

interface Email {
  readonly to: string;
}

/** Compiles only if the two types are the same; `any` is the same as nothing else. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(..._: Same<A, B> extends true ? [] : ["these types differ"]): void => {};

const serializer: Serializer<Email> = {
  encode: (email) => new TextEncoder().encode(email.to),
  decode: async (bytes) => ({ to: new TextDecoder().decode(bytes) }),
};
const json: JsonSerializer = jsonSerializer;
const forPython: JsonSerializer = pythonJsonSerializer;
const wait: WaitOptions = { timeoutMs: 5_000, signal: undefined };
const retention: RetentionOptions = { ackedMs: 604_800_000, failedMs: undefined };
const options: SimpleQueueOptions<Email> = {
  name: "emails",
  leaseMs: 30_000,
  maxRetries: 3,
  fsync: false,
  serializer,
  maxPendingJobs: 1_000,
  retention,
};

async function produce(queue: SimpleQueue<Email>): Promise<void> {
  const put: PutOptions = { jobId: "first", delayMs: 0, maxRetries: 1, ...wait };
  const { id, inserted }: Enqueued = await queue.put({ to: "a@example.com" }, put);
  same<typeof id, number>();
  same<typeof inserted, boolean>();
  const item: EnqueueItemOptions = { delayMs: 1, jobId: "second", maxRetries: 0 };
  const many = await queue.putMany([{ to: "b@example.com" }, new EnqueueItem({ to: "c@example.com" }, item)], wait);
  same<typeof many, Enqueued[]>();
}

async function consume(queue: SimpleQueue<Email>): Promise<void> {
  const job = await queue.get(wait);
  same<typeof job, Job<Email>>();
  same<typeof job.data, Email>();
  same<typeof job.attempt, number>();
  same<typeof job.enqueuedAt, Date>();
  same<typeof job.leaseExpiresAt, Date>();
  same<typeof job.jobId, string | undefined>();
  const lease: Lease = { id: job.id, receipt: job.receipt };
  await queue.extendLease(lease, 60_000);
  await job.extendLease(60_000);
  await queue.ack(lease);

  const [second] = await queue.getMany(1, wait);
  const nack: NackOptions = { delayMs: 0, lastError: new Error("again") };
  await second?.nack(nack);
  const again = await queue.getNowait();
  same<typeof again, Job<Email>>();
  await again.ack();
  const settle = async (one: Job<Email>): Promise<void> => {
    const fail: FailOptions = { category: "test", lastError: "no" };
    await one.release();
    await one.nack();
    await one.fail(fail);
    await queue.nack(one, nack);
    await queue.fail(one, fail);
    await queue.release(one);
  };
  same<Parameters<typeof settle>, [one: Job<Email>]>();

  const jobs: JobsOptions = { signal: AbortSignal.abort() };
  for await (const one of queue.jobs(jobs)) same<typeof one, Job<Email>>();
  same<ReturnType<typeof queue.reclaimExpiredLeases>, Promise<number>>();
}

async function clear(queue: SimpleQueue<Email>): Promise<void> {
  const filter: FailedFilter = { reason: "rejected", category: "none" };
  same<ReturnType<typeof queue.retryFailed>, Promise<number>>();
  if ((await queue.retryFailed(filter)) + (await queue.purgeFailed(filter)) > 0) throw new Error("There is none");
  const old: PurgeOptions = { olderThanMs: 86_400_000, includeFailed: true };
  const purged = await queue.purge(old);
  same<typeof purged, number>();
  const removed = await queue.remove(1);
  same<typeof removed, boolean>();
}

async function look(queue: SimpleQueue<Email>): Promise<void> {
  const by: FindOptions = { jobId: "first" };
  const found = await queue.find(by);
  same<typeof found, JobInfo | undefined>();
  same<JobInfo["state"], JobState>();
  const ready: ListOptions = { state: "ready", limit: 10, afterId: 0 };
  same<ReturnType<typeof queue.list>, Promise<JobInfo[]>>();
  if ((await queue.list(ready)).length > 0) throw new Error("All jobs should be done");
  const failed: ListFailedOptions = { limit: 10, offset: 0, afterId: 0, reason: "rejected", category: "test" };
  const letters: FailedMessage<Email>[] = await queue.listFailed(failed);
  const describe = (letter: FailedMessage<Email>): string => (letter.decoded ? letter.data.to : letter.decodeError);
  const details: FailedDetails[] = letters;
  same<FailedDetails["reason"], FailureReason>();
  const report: QueueDiagnostics = await queue.diagnostics();
  const parts: [DatabaseDiagnostics, LongestRunning, StorageDiagnostics] = [report, report, report];
  const ofFiles: Partial<FileFacts & EngineCounts> = report;
  const ofServers: Partial<ServerFacts> = report;
  same<(typeof report)["warnings"], readonly string[]>();
  console.assert(parts[2].ready === 0 && ofFiles.pageSize !== undefined && ofServers.serverVersion === undefined);
  console.assert(details.length === letters.map(describe).length);
}

async function work(queue: SimpleQueue<Email>): Promise<void> {
  const attempts: AttemptOptions = { maxAttempts: 2 };
  const exponential: ExponentialOptions = { initialMs: 10, factor: 2, maxMs: 100, jitter: false, ...attempts };
  const policies: RetryPolicy[] = [
    RetryPolicy.exponential(exponential),
    RetryPolicy.fixed(5, attempts),
    RetryPolicy.immediate(),
  ];
  const retry: RetryFunction = (attempt, error) => (error instanceof TypeError ? 0 : attempt * 1_000);
  const classes: ErrorClass[] = [TypeError, LocalQueueError];
  const workerOptions: WorkerOptions = {
    concurrency: 2,
    heartbeatMs: false,
    permanentErrors: classes,
    retry: policies[2] ?? retry,
    timeoutMs: 10_000,
    graceMs: 1_000,
  };
  const handler: Handler<Email> = (job, context: HandlerContext) => {
    same<typeof job, Job<Email>>();
    same<typeof context.signal, AbortSignal>();
    const later: RetryOptions = { delayMs: 5, reason: "later" };
    const never: RejectOptions = { category: "gone" };
    if (job.data.to === "retry") throw new Retry(later);
    if (job.data.to === "reject") throw new Reject("no", never);
  };
  const worker = new Worker(queue, handler, workerOptions);
  const off = worker.on("job:failed", ({ job, error, reason }) => {
    same<typeof job, Job<Email>>();
    same<typeof error, unknown>();
    same<typeof reason, FailureReason>();
  });
  worker.on("job:retried", ({ delayMs }) => same<typeof delayMs, number>());
  worker.on("job:acked", (event) => same<typeof event, WorkerEvents<Email>["job:acked"]>());
  worker.on("lease:lost", ({ job }) => same<typeof job.data.to, string>());
  worker.on("error", ({ error }) => same<typeof error, unknown>());
  off();

  while (await worker.runOnce());
  const run: RunOptions = { signal: AbortSignal.abort() };
  await worker.run(run);
  await worker.stop();
  same<(typeof worker)[typeof Symbol.asyncDispose], () => Promise<void>>();
}

/** Compiles only if a message of that channel has that type. */
const tells = <N extends keyof ChannelMessages, M>(
  ..._: Same<ChannelMessages[N], M> extends true ? [] : [N]
): void => {};

function listen(): void {
  tells<"localqueue:put", PutMessage>();
  tells<"localqueue:put:end", PutEndMessage>();
  tells<"localqueue:claim", ClaimMessage>();
  tells<"localqueue:handler", HandlerMessage>();
  tells<"localqueue:handler:end", HandlerEndMessage>();
  tells<"localqueue:settle", SettleMessage>();
  tells<"localqueue:lease-lost", LeaseLostMessage>();
  tells<"localqueue:error", ErrorMessage>();
  const link = (message: PutMessage): void => {
    message.context = message.queue;
  };
  same<Parameters<typeof link>, [message: PutMessage]>();
}

async function care(queue: SimpleQueue<Email>): Promise<void> {
  const mode: IntegrityMode = "quick";
  const onPart = ({ phase, done, total }: IntegrityProgress): void =>
    same<[typeof phase, number, number], [IntegrityPart, typeof done, typeof total]>();
  const check: IntegrityOptions = { mode, maxErrors: 10, onProgress: onPart };
  const report: IntegrityReport = await queue.checkIntegrity(check);
  same<typeof report.messages, readonly string[]>();
  const onPages = ({ phase }: BackupProgress): void => same<typeof phase, "copying" | "verifying">();
  const backup: BackupOptions = { onProgress: onPages };
  // Not done here: the directory would have to be a new one, and no job may be in progress.
  const never = async (): Promise<void> => {
    const copy: BackupReport = await queue.backup(new URL("file:///backup"), backup);
    same<typeof copy.verified, true>();
    await queue.vacuum();
  };
  same<ReturnType<typeof never>, Promise<void>>();
}

function explain(error: unknown): LocalQueueErrorCode | "unknown" {
  if (error instanceof EmptyError) same<typeof error.code, "EMPTY">();
  if (error instanceof FullError) same<typeof error.code, "FULL">();
  if (error instanceof DeduplicationConflictError) same<typeof error.code, "DEDUPLICATION_CONFLICT">();
  if (error instanceof NotFoundError) same<typeof error.code, "NOT_FOUND">();
  if (error instanceof LeaseExpiredError) same<typeof error.code, "LEASE_EXPIRED">();
  if (error instanceof QueueClosedError) same<typeof error.code, "CLOSED">();
  if (error instanceof PayloadError) same<typeof error.code, "PAYLOAD">();
  if (error instanceof InvalidEventError) same<typeof error.code, "INVALID_EVENT">();
  if (error instanceof NoSubscribersError) same<typeof error.code, "NO_SUBSCRIBERS">();
  if (error instanceof StorageError) {
    same<typeof error.code, StorageErrorCode>();
    same<typeof error.outcome, StorageOutcome>();
  }
  return error instanceof LocalQueueError ? error.code : "unknown";
}

/** What must not compile; none of it is called. */
function mistakes(queue: SimpleQueue<Email>, worker: Worker<Email>): readonly (() => unknown)[] {
  return [
    // @ts-expect-error: another payload
    () => queue.put({ from: "a@example.com" }),
    // @ts-expect-error: a misspelled option
    () => queue.put({ to: "a@example.com" }, { delay: 5 }),
    // @ts-expect-error: another payload in an item
    () => queue.putMany([new EnqueueItem(5)]),
    // @ts-expect-error: a property that the payload does not have
    async () => (await queue.get()).data.subject,
    // @ts-expect-error: a lease needs a receipt
    () => queue.ack({ id: 1 }),
    // @ts-expect-error: a serializer of something else
    () => new SimpleQueue<number>("./data", { serializer }),
    // @ts-expect-error: a location that is neither a path nor a URL
    () => new SimpleQueue(5),
    // @ts-expect-error: no such event
    () => worker.on("job:done", () => {}),
    // @ts-expect-error: a handler of other jobs
    () => new Worker(queue, (job: Job<number>) => job.data.toFixed()),
    // @ts-expect-error: a policy is made by the static methods
    () => new RetryPolicy(),
  ];
}

async function main(): Promise<void> {
  const queue = new SimpleQueue<Email>(process.argv[2] ?? "./data", options);
  await produce(queue);
  await consume(queue);
  await work(queue);
  listen();
  await look(queue);
  await clear(queue);
  await care(queue);
  const refused = mistakes(queue, new Worker(queue, () => {})).length;
  const stats: QueueStats = await queue.stats();
  await queue.close();
  const code = explain(await queue.getNowait().catch((error: unknown) => error));
  const { to } = json.decode<Email>(forPython.encode({ to: "d@example.com" }));

  const location: string | URL | Location = "./data";
  const untyped = new SimpleQueue(location);
  same<typeof untyped, SimpleQueue<unknown>>();
  await untyped.close();
  process.stdout.write(JSON.stringify({ stats, code, to, refused }));
}

main().catch((error: unknown) => {
  process.exitCode = 1;
  process.stderr.write(String(error));
});
