import type { FailedDetails } from "../job-info.ts";
import { failedDetails } from "../job-info.ts";
import type { FailedRecord } from "../storage/storage.ts";
import { describeThrown } from "../thrown.ts";
import { readEnvelope, restore } from "./envelope.ts";
import type { Event } from "./event.ts";
import type { Handlers } from "./handlers.ts";

/** A dead letter of a subscription, with its event if that can be read here. */
export type FailedDelivery = FailedDetails & {
  readonly subscription: string;
  /** As it is in the envelope, if that can be read. */
  readonly eventType?: string | undefined;
} & ({ readonly decoded: true; readonly event: Event } | { readonly decoded: false; readonly decodeError: string });

/** Never rejects: one that cannot be read is shown as it is. */
export async function failedDelivery(
  subscription: string,
  handlers: Handlers,
  record: FailedRecord,
): Promise<FailedDelivery> {
  const details = { ...failedDetails(record), subscription };
  let eventType: string | undefined;
  try {
    const envelope = readEnvelope(record.payload);
    eventType = envelope.type;
    const definition = handlers.definitionOf(eventType);
    if (definition === undefined && handlers.of(eventType) === undefined)
      throw new Error(`unknown event type "${eventType}"`);
    return { ...details, eventType, decoded: true, event: await restore(envelope, definition) };
  } catch (error) {
    return { ...details, eventType, decoded: false, decodeError: describeThrown(error) };
  }
}
