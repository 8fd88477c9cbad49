import { type Serializer, SimpleQueue, type SimpleQueueOptions } from "../index.ts";
import { whatLacks } from "../storage/presence.ts";
import type { Arguments } from "./arguments.ts";
import { checked, checkedLater, Failure, Misuse } from "./failures.ts";
import type { Closable } from "./place.ts";
import { printable, shellLine } from "./wording.ts";

/**
 * Payloads go in and come out as they are: parsing and writing JSON again would lose integers beyond 2^53, the order of
 * digits as keys, and the spelling of numbers.
 */
export const TEXT: Serializer<string> = {
  encode: (text) => Buffer.from(text),
  decode: (bytes) => Buffer.from(bytes).toString(),
};
export const BYTES: Serializer<Uint8Array> = { encode: (bytes) => bytes, decode: (bytes) => bytes };

/** The queue that the arguments name. */
export function openQueue<T>(args: Arguments, options: SimpleQueueOptions<T> = {}): SimpleQueue<T> {
  const { location } = args;
  const name = args.text("queue");
  if (name?.startsWith("__bus__:")) {
    const line = shellLine(["localqueue", "bus", "stats", args.shownLocation]);
    throw new Misuse(`Queues like "__bus__:…" belong to event buses. Type ${line}, or localqueue bus --help.`);
  }
  return checked(() => new SimpleQueue(location, { ...options, name }));
}

export function queueName(args: Arguments): string {
  return args.text("queue") ?? "default";
}

/** 'Queue "emails" of ./data'. */
export function queueTitle(args: Arguments): string {
  return printable(`Queue "${queueName(args)}" of ${args.shownLocation}`);
}

/** The line to type for another command on the same queue, or subscription. */
export function again(args: Arguments, command: string, ...more: readonly string[]): string {
  const names = args.typed("queue", "subscription", "bus");
  return shellLine(["localqueue", ...command.split(" "), args.shownLocation, ...names, ...more]);
}

/** Uses the queue that the arguments name, for a report: it must be there, and nothing is created. */
export async function inspect<T>(
  args: Arguments,
  look: (queue: SimpleQueue<Uint8Array>, owner: Closable) => Promise<T>,
): Promise<T> {
  const queue = openQueue(args, { serializer: BYTES });
  try {
    const lacks = await whatLacks(args.location);
    if (lacks !== undefined) throw new Failure(`There is no queue in ${args.shownLocation}: it has no ${lacks}.`);
    return await checkedLater(look(queue, queue));
  } finally {
    await queue.close();
  }
}
