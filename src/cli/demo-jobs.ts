import type { SimpleQueueOptions } from "../index.ts";

/** A job of the demo, and what happens when it is handled for the first time. */
export interface DemoJob {
  readonly task: string;
  readonly to: string;
  readonly mishap?: "the worker hangs" | "no connection" | "no such address";
}

export const DEMO_QUEUE: SimpleQueueOptions<DemoJob> = { name: "demo", leaseMs: 1_500 };

export const DEMO_JOBS: readonly DemoJob[] = [
  { task: "welcome", to: "ada@example.com" },
  { task: "invoice", to: "grace@example.com", mishap: "the worker hangs" },
  { task: "receipt", to: "alan@example.com", mishap: "no connection" },
  { task: "welcome", to: "nobody@example.invalid", mishap: "no such address" },
  { task: "reminder", to: "edsger@example.com" },
];

/** What a worker of the demo tells the process that started it. */
export interface DemoNews {
  readonly what: "begins" | "hangs in" | "job:acked" | "job:retried" | "job:failed";
  readonly id: number;
  readonly attempt: number;
  readonly job: DemoJob;
  readonly reason?: string;
}
