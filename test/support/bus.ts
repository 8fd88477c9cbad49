import { onTestFinished } from "vitest";
import {
  type BusRunOptions,
  EventBus,
  type EventBusEvents,
  type EventBusOptions,
  type StandardSchema,
} from "../../dist/bus/index.js";
import { openPatient } from "./database.ts";
import { select } from "./inspect.ts";
import { tempLocation } from "./location.ts";

export interface TestBusOptions<Context extends object> extends EventBusOptions<Context> {
  /** Default: one of the test's own. */
  readonly location?: string;
}

/** A bus that is closed when the test is over. */
export function openBus<Context extends object = object>({
  location = tempLocation(),
  ...options
}: TestBusOptions<Context>): EventBus<Context> {
  const bus = new EventBus<Context>(location, options);
  onTestFinished(() => bus.close());
  return bus;
}

/** Runs a bus until the test is over, or until it is stopped. */
export function run(bus: Pick<EventBus, "run">, options?: BusRunOptions): Promise<void> {
  const running = bus.run(options);
  running.catch(() => {}); // whoever cares awaits it
  return running;
}

/** How long a run that is to end by itself waits, in milliseconds. */
export const IDLE = { idleTimeoutMs: 60 };

/** What a bus told, in order: the event, what it is about, and what it adds to that. */
export type BusTold = [name: keyof EventBusEvents, subscription: string, ...about: unknown[]][];

/** Writes down the events of a bus: the subscription, the event's data, and what else there is. */
export function listenToBus(bus: Pick<EventBus, "on">): BusTold {
  const told: BusTold = [];
  bus.on("event:acked", ({ subscription, event }) => told.push(["event:acked", subscription, event.data]));
  bus.on("event:retried", ({ subscription, event, error, delayMs }) =>
    told.push(["event:retried", subscription, event.data, error, delayMs]),
  );
  bus.on("event:failed", ({ subscription, event, error, reason }) =>
    told.push(["event:failed", subscription, event.data, error, reason]),
  );
  bus.on("lease:lost", ({ subscription, event }) => told.push(["lease:lost", subscription, event.data]));
  bus.on("error", ({ subscription, error }) => told.push(["error", subscription, error]));
  return told;
}

/** Makes all deliveries that wait for their time due, as if that time had passed. */
export function passTime(location: string): void {
  const database = openPatient(location);
  database.exec("UPDATE messages SET available_at = created_at WHERE status = 0 AND available_at > created_at");
  database.close();
}

/** What is stored of the deliveries of a subscription, as JSON. */
export function storedIn(location: string, subscription: string, bus = "default"): Record<string, unknown>[] {
  const rows = select(location, "SELECT queue, CAST(payload AS TEXT) AS text FROM messages ORDER BY id");
  return rows
    .filter(({ queue }) => queue === `__bus__:${bus}:${subscription}`)
    .map(({ text }) => JSON.parse(String(text)));
}

/** Which delivery led to which, as pairs of the data of their events. */
export function edgesOf(location: string): [parent: unknown, child: unknown][] {
  const rows = select(
    location,
    `SELECT CAST(p.payload AS TEXT) AS parent, CAST(c.payload AS TEXT) AS child FROM event_bus_delivery_edges
      JOIN messages p ON p.id = parent_message_id JOIN messages c ON c.id = child_message_id
      ORDER BY parent_message_id, child_message_id`,
  );
  return rows.map(({ parent, child }) => [JSON.parse(String(parent)).payload, JSON.parse(String(child)).payload]);
}

/** A schema that does what a function says: what it returns is the output, what it throws is an issue. */
export function schema<Input, Output = Input>(
  parse: (value: Input) => Output | Promise<Output>,
): StandardSchema<Input, Output> {
  const refuse = (error: unknown) => ({ issues: [{ message: (error as Error).message }] });
  const validate = (value: unknown) => {
    try {
      const made = parse(value as Input);
      return made instanceof Promise ? made.then((output) => ({ value: output }), refuse) : { value: made };
    } catch (error) {
      return refuse(error);
    }
  };
  return { "~standard": { version: 1, vendor: "test", validate } };
}
