import { accessSync, constants, statSync } from "node:fs";
import path from "node:path";
import { type Handler, type Job, Reject } from "../index.ts";
import type { ChildEnd, Children } from "./children.ts";

/** Those of sysexits.h, which mail servers use in the same sense. */
const EXIT_DATA_ERROR = 65;
const EXIT_TEMPORARY_FAILURE = 75;

/** How long a child has that is terminated because the worker stops. The worker waits for its handlers a second more. */
const STOPPING_MS = 500;

export interface JobCommand {
  readonly queue: string;
  readonly program: string;
  readonly args: readonly string[];
  readonly graceMs: number;
}

/** A handler that runs a program for each job. What it throws is a text where that shall be stored as it is. */
export function runCommand(children: Children, { queue, program, args, graceMs }: JobCommand): Handler<Uint8Array> {
  return async (job, { signal }) => {
    const isStopping = (): boolean => signal.aborted && signal.reason?.name === "AbortError";
    let end: ChildEnd;
    try {
      end = await children.run({
        program,
        args,
        env: environment(queue, job),
        input: job.data,
        signal,
        killAfterMs: () => (isStopping() ? STOPPING_MS : graceMs),
      });
    } catch (error) {
      throw `could not be started (${(error as NodeJS.ErrnoException).code})`;
    }
    if (end.code === 0) return;
    if (end.code === EXIT_DATA_ERROR) throw new Reject(describeEnd(end), { category: `exit-${end.code}` });
    // It would not have ended like this if it had not been told to: the delivery does not count.
    if (isStopping() && end.code !== EXIT_TEMPORARY_FAILURE) throw signal.reason;
    throw describeEnd(end);
  };
}

function describeEnd({ code, signal }: ChildEnd): string {
  return signal === null ? `exit code ${code}` : `killed by ${signal}`;
}

function environment(queue: string, { id, attempt, jobId }: Job<unknown>): NodeJS.ProcessEnv {
  return {
    ...process.env,
    LOCALQUEUE_ID: `${id}`,
    LOCALQUEUE_ATTEMPT: `${attempt}`,
    LOCALQUEUE_QUEUE: queue,
    // The command may have been started by a job itself: its variable is not to be inherited.
    LOCALQUEUE_JOB_ID: jobId,
  };
}

/** Whether a program of this name, or path, could be started: found before any job is claimed for it. */
export function canBeStarted(program: string): boolean {
  if (program.includes("/")) return isExecutable(program);
  const directories = (process.env["PATH"] ?? "/usr/bin:/bin").split(path.delimiter);
  return directories.some((directory) => isExecutable(path.join(directory, program)));
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
