export type { BackupOptions, IntegrityOptions } from "./care-options.ts";
export type {
  ChannelMessages,
  ClaimMessage,
  ErrorMessage,
  HandlerEndMessage,
  HandlerMessage,
  LeaseLostMessage,
  PutEndMessage,
  PutMessage,
  SettleMessage,
} from "./channels.ts";
export type { QueueDiagnostics } from "./diagnostics.ts";
export {
  DeduplicationConflictError,
  EmptyError,
  FullError,
  InvalidEventError,
  LeaseExpiredError,
  LocalQueueError,
  type LocalQueueErrorCode,
  NoSubscribersError,
  NotFoundError,
  PayloadError,
  QueueClosedError,
  StorageError,
  type StorageErrorCode,
  type StorageOutcome,
} from "./errors.ts";
export type { HandlerContext } from "./handler-run.ts";
export { EnqueueItem, type EnqueueItemOptions, type FailOptions, type Job, type NackOptions } from "./job.ts";
export type { FailedDetails, FailedMessage, JobInfo } from "./job-info.ts";
export type { Handler, WorkerEvents } from "./job-work.ts";
export type { FindOptions, ListFailedOptions, ListOptions } from "./look-options.ts";
export type { FailedFilter, PurgeOptions } from "./purge-options.ts";
export { SimpleQueue } from "./queue.ts";
export type {
  JobsOptions,
  PutOptions,
  RetentionOptions,
  SimpleQueueOptions,
  WaitOptions,
} from "./queue-options.ts";
export {
  type AttemptOptions,
  type ExponentialOptions,
  Reject,
  type RejectOptions,
  Retry,
  type RetryOptions,
  RetryPolicy,
} from "./retry.ts";
export { type JsonSerializer, jsonSerializer, pythonJsonSerializer, type Serializer } from "./serializer.ts";
export type { FailureReason, JobState } from "./state.ts";
export type {
  BackupProgress,
  BackupReport,
  IntegrityMode,
  IntegrityPart,
  IntegrityProgress,
  IntegrityReport,
} from "./storage/care.ts";
export type { Location } from "./storage/location.ts";
export type {
  DatabaseDiagnostics,
  EngineCounts,
  Enqueued,
  FileFacts,
  Lease,
  LongestRunning,
  QueueStats,
  ServerFacts,
  StorageDiagnostics,
} from "./storage/storage.ts";
export { Worker } from "./worker.ts";
export type { ErrorClass, RetryFunction, RunOptions, WorkerOptions } from "./worker-options.ts";
