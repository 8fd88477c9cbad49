import { workerData } from "node:worker_threads";
import { backup } from "./backup.ts";
import { diagnose } from "./diagnosis.ts";

import { toStorageError } from "./driver.ts";
import { checkIntegrity } from "./integrity.ts";
import { enterSqlite, leaveSqlite, whileWorking } from "./leaving.ts";
import { find, list, listFailed, queues } from "./look.ts";
import { moveLog } from "./move-log.ts";
import { errorOnWire } from "./outbox.ts";
import type { ErrorOnWire, ThreadData } from "./protocol.ts";
import { SideContext } from "./side-context.ts";
import { vacuum } from "./vacuum.ts";

/**
 * A thread beside the engine, for what only reads or takes long. Unlike the engine it has an event loop, and does one
 * task after the other.
 */
export interface SideTasks {
  readonly find: typeof find;
  readonly list: typeof list;
  readonly listFailed: typeof listFailed;
  readonly queues: typeof queues;
  readonly diagnose: typeof diagnose;
  readonly checkIntegrity: typeof checkIntegrity;
  readonly backup: typeof backup;
  readonly vacuum: typeof vacuum;
  readonly moveLog: typeof moveLog;
}
const TASKS: SideTasks = { find, list, listFailed, queues, diagnose, checkIntegrity, backup, vacuum, moveLog };

export type TaskName = keyof SideTasks;
export type TaskInput<N extends TaskName> = Parameters<SideTasks[N]>[0];
export type TaskResult<N extends TaskName> = Awaited<ReturnType<SideTasks[N]>>;

/** `end`: as soon as what was asked before is done. */
export type ToSide = { readonly id: number; readonly name: TaskName; readonly input: unknown } | "end";
export type FromSide = { readonly id: number } & (
  | { readonly result: unknown }
  | { readonly error: ErrorOnWire }
  | { readonly progress: unknown }
);

function run({ directory, port, signals }: ThreadData): void {
  const post = (message: FromSide): void => port.postMessage(message);
  let asked = 0;
  let context: SideContext | undefined;
  const perform = async (name: TaskName, input: unknown): Promise<unknown> => {
    context ??= new SideContext(directory, signals, (progress) => post({ id: asked, progress }));
    const task = TASKS[name] as (input: unknown, context: SideContext) => unknown;
    return await task(input, context);
  };
  const receive = async (message: ToSide): Promise<void> => {
    if (message === "end") {
      whileWorking(signals, () => context?.close());
      port.close();
      return;
    }
    if (!enterSqlite(signals)) return;
    asked = message.id;
    try {
      post({ id: asked, result: await perform(message.name, message.input) });
    } catch (error) {
      post({ id: asked, error: errorOnWire(toStorageError(error, directory)) });
      context?.close();
    } finally {
      leaveSqlite(signals);
    }
  };
  let last: Promise<void> = Promise.resolve();
  port.on("message", (message: ToSide) => {
    last = last.then(() => receive(message));
  });
}

run(workerData as ThreadData);
