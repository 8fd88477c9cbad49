import { type PythonFailed, PythonObject } from "./python.ts";

/** Keyword arguments of Python; seconds. */
export interface PythonBusOptions {
  readonly name?: string;
  readonly routes: Readonly<Record<string, readonly string[]>>;
  readonly delivery?: { readonly lease_seconds?: number; readonly max_retries?: number };
}

/** What a handler of Python got. */
export interface PythonHandled {
  readonly subscription: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
  readonly attempt: number;
  readonly event_id: string;
  readonly correlation_id: string;
  readonly causation_id: string | null;
  readonly event_created_at: string;
}

export interface PythonReceipt {
  readonly event_id: string;
  readonly event_type: string;
  readonly subscriptions: readonly string[];
  readonly message_ids: readonly number[];
  readonly inserted: readonly boolean[];
}

export interface PythonLineage {
  readonly event_id?: string;
  readonly correlation_id?: string;
  readonly causation_id?: string;
  readonly event_created_at?: string;
}

export type PythonFailedDelivery = Pick<
  PythonFailed,
  "id" | "raw" | "attempts" | "reason" | "category" | "last_error"
> & {
  readonly subscription: string;
  readonly type: string | null;
  readonly event_id: string | null;
  readonly inspection_error: string | null;
};

export interface PythonRunOptions {
  readonly idle_timeout?: number;
  readonly concurrency?: number;
  /** Arguments of `RetryPolicy.fixed`. */
  readonly retry?: { readonly max_attempts: number; readonly delay: number };
  /** What to handle, instead of everything that is known. */
  readonly types?: readonly string[];
  /** With it, handlers wait until they are stopped. */
  readonly timeout?: number;
}

export interface PythonSourceOptions {
  readonly fingerprint?: string;
  readonly batch_size?: number;
  readonly max_pending?: number;
}

/** What is of interest of an `ExecutionResult`. */
export interface PythonExecution {
  readonly execution_id: string;
  readonly resumed: boolean;
  readonly succeeded: boolean;
  readonly source_completed: boolean;
  readonly items_committed: number;
  readonly events_dispatched: number;
  readonly deliveries_inserted: number;
  readonly deliveries_deduplicated: number;
  readonly deliveries_total: number;
  readonly deliveries_acknowledged: number;
  readonly deliveries_failed: number;
}

/** An event bus of the Python package in a process of its own. */
export class PythonBus extends PythonObject {
  constructor(location: string, options: PythonBusOptions) {
    super("bus_commands", { location, options });
  }

  dispatch(type: string, data: object, lineage: PythonLineage = {}): Promise<PythonReceipt> {
    return this.call("dispatch", type, data, lineage);
  }

  /** With data that only Python's `json` can read. */
  dispatchText(type: string, text: string): Promise<PythonReceipt> {
    return this.call("dispatch_text", type, text);
  }

  /** Runs the subscriptions until there is nothing to do; resolves to what was handled. */
  run(subscriptions: readonly string[], options: PythonRunOptions = {}): Promise<PythonHandled[]> {
    return this.call("run", subscriptions, options);
  }

  listFailed(subscription: string): Promise<PythonFailedDelivery[]> {
    return this.call("list_failed", subscription);
  }

  retryFailed(subscription: string, id: number): Promise<void> {
    return this.call("retry_failed", subscription, id);
  }

  /** Brings the tasks of a sequence to the bus, and waits until all that came of them is done. */
  execute(
    items: readonly object[],
    checkpoint: string,
    options: PythonSourceOptions & { readonly timeout?: number; readonly run?: readonly string[] } = {},
  ): Promise<PythonExecution> {
    return this.call("execute", items, checkpoint, options);
  }

  ingest(items: readonly object[], checkpoint: string, options: PythonSourceOptions = {}): Promise<object> {
    return this.call("ingest", items, checkpoint, options);
  }
}
