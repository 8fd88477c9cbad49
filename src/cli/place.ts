import type { FailedDetails, FailedFilter, JobInfo, ListFailedOptions, PurgeOptions } from "../index.ts";
import type { Arguments, CommandOption } from "./arguments.ts";

/** A `SimpleQueue`, or a `Subscription`. */
export interface Holder<Letter> {
  listFailed(options: ListFailedOptions): Promise<Letter[]>;
  retryFailed(which: { readonly id: number } | FailedFilter): Promise<number>;
  purgeFailed(which: { readonly id: number } | FailedFilter): Promise<number>;
  purge(options: PurgeOptions): Promise<number>;
  find?(by: { readonly id: number }): Promise<JobInfo | undefined>;
}

/** What can be closed while it is looked at: that ends what takes long. */
export interface Closable {
  close(): Promise<void>;
}

/** Opens what the arguments name for a report, and closes it. */
export type Inspect<Asked> = <T>(args: Arguments, look: (asked: Asked, owner: Closable) => Promise<T>) => Promise<T>;

/** Where dead letters and done work are: in a queue, or in a subscription. What the commands for each say and ask. */
export interface Place<Letter extends FailedDetails> {
  /** What the names of the commands begin with. */
  readonly prefix: "" | "bus ";
  readonly kind: "queue" | "subscription";
  readonly unit: "job" | "event";
  /** How it is named, and two ways to type that. */
  readonly options: { readonly [name: string]: CommandOption };
  readonly typed: readonly [usual: string, other: string];
  /** What is forgotten with a done job. */
  readonly forgotten: string;
  readonly inspect: Inspect<Holder<Letter>>;
  /** 'queue "emails"' */
  name(args: Arguments): string;
  /** 'Queue "emails" of ./data' */
  title(args: Arguments): string;
  /** What a list shows of a dead letter between its id and the error. */
  readonly columns: readonly (readonly [head: string, textOf: (letter: Letter) => string])[];
  /** What else identifies a dead letter. */
  about(letter: Letter): { readonly [name: string]: string | undefined };
  /** What the bytes of a dead letter are called; in JSON, if they are that. */
  readonly payload: readonly [label: string, inJson: string];
}
