import { LocalQueueError } from "../index.ts";
import { sentence } from "./wording.ts";

/** The command line says something that cannot be done; the message says what to type instead. Exit code 2. */
export class Misuse extends Error {}

/** The command could not do what it was asked to; the message is the whole explanation. Exit code 1. */
export class Failure extends Error {}

export const EXIT = { done: 0, failed: 1, misuse: 2 } as const;

/** What to say about an error, and the exit code; `undefined` = a fault of this program, whose stack is of use. */
export function explain(error: unknown): { readonly text: string; readonly exitCode: number } | undefined {
  if (error instanceof Misuse) return { text: error.message, exitCode: EXIT.misuse };
  if (error instanceof Failure) return { text: error.message, exitCode: EXIT.failed };
  if (error instanceof LocalQueueError) return { text: withCode(error), exitCode: EXIT.failed };
  const { syscall, message } = error as NodeJS.ErrnoException;
  return typeof syscall === "string" ? { text: sentence(message), exitCode: EXIT.failed } : undefined;
}

export function withCode({ code, message }: LocalQueueError): string {
  return sentence(`${code}: ${message}`);
}

/** The names of options in the messages of the package, as they are typed here, where they are not spelt alike. */
const TYPED: { readonly [option: string]: string } = {
  name: "--queue",
  location: "<location>",
  directory: "<directory>",
  afterId: "--after",
  olderThanMs: "--older-than",
};

/** Runs what checks options: what it refuses was typed wrong. */
export function checked<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw misuseOf(error);
  }
}

/** The same for what is refused by a promise. */
export function checkedLater<T>(promise: Promise<T>): Promise<T> {
  return promise.catch((error: unknown) => {
    throw misuseOf(error);
  });
}

/** What an option was refused with becomes misuse; any other error stays what it is. */
function misuseOf(error: unknown): unknown {
  if (!(error instanceof TypeError || error instanceof RangeError)) return error;
  const typed = (option: string): string =>
    TYPED[option] ?? `--${option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  const message = error.message.replace(/`(\w+)`/, (_, option: string) => typed(option));
  return new Misuse(`${message}.`, { cause: error });
}
