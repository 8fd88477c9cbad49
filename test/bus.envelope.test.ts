import fc from "fast-check";
import { InvalidEventError } from "localqueue";
import { describe, expect, test } from "vitest";
import { defineEvent } from "../dist/bus/definition.js";
import { EnvelopeError, readEnvelope, restore, writeEnvelope } from "../dist/bus/envelope.js";
import { type Event, emitted, identityOf } from "../dist/bus/event.js";

const ID = "11111111-2222-3333-4444-555555555555";
const CAUSE = "22222222-2222-3333-4444-555555555555";
const Contact = defineEvent("contact.creation-requested", undefined, { identity: ["cnpj"] });

/** As the Python package wrote it. */
const PYTHON = String.raw`{"event_id": "${ID}", "correlation_id": "${ID}", "causation_id": null, "event_type": "contact.creation-requested", "event_schema": "contact.creation-requested@1", "event_created_at": "2026-01-02T03:04:05.678901+00:00", "payload": {"cnpj": "12345678000190", "nome": "Jos\u00e9 \u592a\u90ce \ud83d\ude00"}}`;

function envelope(changes: object = {}): string {
  return JSON.stringify({ ...JSON.parse(PYTHON), ...changes });
}

function refusal(stored: string | Uint8Array): EnvelopeError {
  try {
    readEnvelope(stored);
  } catch (error) {
    expect(error).toBeInstanceOf(EnvelopeError);
    return error as EnvelopeError;
  }
  throw new Error("It was accepted.");
}

/** Without a schema, nothing is asynchronous. */
const restored = (stored: string | Uint8Array): Event => restore(readEnvelope(stored), Contact) as Event;

describe("what is stored of an event", () => {
  test("is an envelope with the keys and the time of the Python package", () => {
    const createdAt = new Date("2026-01-02T03:04:05.678Z");
    const event = Contact({ cnpj: "7", nome: "José" }, { id: ID, causationId: CAUSE, createdAt });
    expect(writeEnvelope(event)).toBe(
      `{"event_id":"${ID}","correlation_id":"${ID}","causation_id":"${CAUSE}","event_type":"contact.creation-requested",` +
        `"event_schema":"contact.creation-requested@1","event_created_at":"2026-01-02T03:04:05.678000+00:00",` +
        `"payload":{"cnpj":"7","nome":"José"}}`,
    );
    const whole = Contact({ cnpj: "7" }, { createdAt: new Date("0001-01-01T00:00:00Z") });
    expect(JSON.parse(writeEnvelope(whole))).toMatchObject({
      causation_id: null,
      event_created_at: "0001-01-01T00:00:00+00:00",
    });
  });

  test("comes back as the same event, whatever the data", () => {
    const Any = defineEvent<Record<string, unknown>>("any");
    const data = fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue({ noUnicodeString: false }));
    const createdAt = fc.date({ min: new Date("0001-01-01"), max: new Date("9999-12-31"), noInvalidDate: true });
    const id = fc.option(fc.uuid(), { nil: undefined });
    fc.assert(
      fc.property(data, createdAt, id, id, (input, createdAt, correlationId, causationId) => {
        const event = Any(input, { createdAt, correlationId, causationId });
        const text = writeEnvelope(event);
        for (const stored of [text, new TextEncoder().encode(text)]) {
          const again = restore(readEnvelope(stored), Any) as Event;
          expect(again).toEqual(event);
          expect(writeEnvelope(again)).toBe(text);
        }
      }),
      { numRuns: 300 },
    );
  });

  test("keeps its lineage over three generations", () => {
    const root = Contact({ cnpj: "1" });
    const child = restored(writeEnvelope(Contact.from(restored(writeEnvelope(root)), { cnpj: "2" })));
    const grandchild = restored(writeEnvelope(emitted(Contact({ cnpj: "3" }), child)));
    expect(child).toMatchObject({ correlationId: root.id, causationId: root.id });
    expect(grandchild).toMatchObject({ correlationId: root.id, causationId: child.id });
  });
});

describe("an envelope that was read", () => {
  test("is the event that the Python package wrote", () => {
    const event = restored(PYTHON);
    expect(event).toEqual({
      id: ID,
      type: "contact.creation-requested",
      schema: "contact.creation-requested@1",
      createdAt: new Date("2026-01-02T03:04:05.678Z"),
      correlationId: ID,
      causationId: undefined,
      data: { cnpj: "12345678000190", nome: "José 太郎 😀" },
    });
    expect(Object.isFrozen(event)).toBe(true);
    expect(identityOf(event)?.key).toBe(
      "event-identity:v1:2be10f547eb6c3ef1df61b0031d88da1ebbf189fe58353bc46012aaddc4d4a6a",
    );
  });

  test("is written again as it was, down to digits that JavaScript does not have", () => {
    const payload = `{"cnpj": "}\\",{", "big": 1152921504606846977, "f": 1.0, "payload": {"a": [",", {"b": 2}]} }`;
    const python = PYTHON.replace(
      /\{"cnpj".*?\}/,
      () => `{"cnpj": 1}, "pay\\u006coad": ${payload}, "extra": [{}, "}"], "last": "payload"`,
    );
    const event = restored(python);
    expect(event.data).toEqual(JSON.parse(payload));
    (event.data as Record<string, unknown>)["cnpj"] = "changed";
    const again = writeEnvelope(event);
    expect(again).toContain(`,"event_created_at":"2026-01-02T03:04:05.678901+00:00","payload":${payload}}`);
    expect(again).toBe(writeEnvelope(restored(again)));
  });

  test("may lack lineage, and have keys that nobody knows", () => {
    const { correlation_id, causation_id, event_schema, ...old } = JSON.parse(PYTHON);
    const stored = JSON.stringify({ ...old, extra: 1 });
    expect(restored(stored)).toMatchObject({
      correlationId: ID,
      causationId: undefined,
      schema: "contact.creation-requested@1",
    });
    expect(restored(envelope({ causation_id: CAUSE.toUpperCase() })).causationId).toBe(CAUSE);
    expect(restored(envelope({ event_schema: "contact@9" })).schema).toBe("contact@9");
    expect(restored(envelope({ event_schema: 5 })).schema).toBe("contact.creation-requested@1");
    expect(restore(readEnvelope(envelope({ event_type: "x", event_schema: null })), undefined)).toMatchObject({
      type: "x",
      schema: "x@1",
    });
  });

  test("keeps apart what the envelope and the payload have by the same name", () => {
    const event = restored(envelope({ payload: { event_id: "mine", event_type: "mine", cnpj: "1" } }));
    expect(event).toMatchObject({ id: ID, data: { event_id: "mine", event_type: "mine" } });
  });

  test.each([
    ["2026-01-02T03:04:05.678901+00:00", "2026-01-02T03:04:05.678Z"],
    ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"],
    ["2026-01-02 03:04:05.1", "2026-01-02T03:04:05.100Z"],
    ["2026-01-02T03:04:05.123456789-05:30", "2026-01-02T08:34:05.123Z"],
    ["2026-01-02t03:04:05+0200", "2026-01-02T01:04:05.000Z"],
    ["2026-01-02T03:04", "2026-01-02T03:04:00.000Z"],
    ["0001-01-01T00:00:00+00:00", "0001-01-01T00:00:00.000Z"],
    ["2024-02-29T23:59:59.999999+23:59", "2024-02-29T00:00:59.999Z"],
  ])("was created at %s, which is kept as it is", (text, time) => {
    const event = restored(envelope({ event_created_at: text }));
    expect(event.createdAt.toISOString()).toBe(time);
    expect(JSON.parse(writeEnvelope(event)).event_created_at).toBe(text);
  });

  test.each([
    [1_767_323_045, "2026-01-02T03:04:05+00:00"],
    [1_767_323_045.25, "2026-01-02T03:04:05.250000+00:00"],
    [1_767_323_045_678, "2026-01-02T03:04:05.678000+00:00"],
    ["1767323045", "2026-01-02T03:04:05+00:00"],
    [20_000_000_000, "2603-10-11T11:33:20+00:00"],
    [-1, "1969-12-31T23:59:59+00:00"],
  ])("was created at %s of the epoch", (value, text) => {
    const event = restored(envelope({ event_created_at: value }));
    expect(JSON.parse(writeEnvelope(event)).event_created_at).toBe(text);
  });

  test.each<[string | Uint8Array, string]>([
    ["", "Malformed envelope: PayloadError: The payload is not valid JSON"],
    ["{", "is not valid JSON"],
    ['{"payload": NaN}', "is not valid JSON"],
    [Uint8Array.of(0x22, 0xff, 0x22), "is not valid UTF-8"],
    ["[]", "Malformed envelope: expected a JSON object, got an array"],
    ["null", "got null"],
    ['"text"', "got a string"],
    ["{}", "`event_type` is missing or no string"],
    [envelope({ event_type: 5 }), "`event_type` is missing or no string"],
    [envelope({ payload: undefined }), "`payload` is missing or no object"],
    [envelope({ payload: null }), "`payload` is missing or no object"],
    [envelope({ payload: [] }), "`payload` is missing or no object"],
    [envelope({ payload: "{}" }), "`payload` is missing or no object"],
  ])("is malformed if it is %s", (stored, message) => {
    expect(refusal(stored)).toMatchObject({ reason: "invalid_envelope", message: expect.stringContaining(message) });
  });

  test.each([
    [{ event_id: undefined }, "Invalid event: `event_id` is missing or no UUID"],
    [{ event_id: null }, "`event_id`"],
    [{ event_id: "7" }, "`event_id`"],
    [{ correlation_id: null }, "`correlation_id` is missing or no UUID"],
    [{ correlation_id: 7 }, "`correlation_id`"],
    [{ causation_id: "" }, "`causation_id` is missing or no UUID"],
    ...[
      undefined,
      null,
      true,
      "",
      "yesterday",
      "2026-02-29T00:00:00Z",
      "2026-13-01T00:00:00Z",
      "2026-01-02T24:00:00Z",
      "2026-01-02T03:04:60Z",
      "2026-01-02T03:04:05.1234567890Z",
      "2026-01-02T03:04:05+24:00",
      "2026-01-02T03:04:05 +00:00x",
      "0000-01-01T00:00:00Z",
      "0001-01-01T00:00:00+01:00",
      1e18,
    ].map((time): [object, string] => [
      { event_created_at: time },
      "`event_created_at` is missing or no date and time",
    ]),
  ])("is invalid with %j", (changes, message) => {
    const error = refusal(envelope(changes));
    expect(error).toMatchObject({ reason: "invalid_payload", message: expect.stringContaining(message) });
    expect(error.cause).toBeInstanceOf(InvalidEventError);
  });
});
