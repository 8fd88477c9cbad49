import { NotFoundError, Reject } from "localqueue";
import { describe, expect, test } from "vitest";
import { BusTopology, defineEvent } from "../dist/bus/index.js";
import { IDLE, listenToBus, openBus } from "./support/bus.ts";
import { openDatabase, readRow } from "./support/database.ts";
import { tempLocation } from "./support/location.ts";

const Created = defineEvent<{ n: number }>("created");
const topology = new BusTopology({ email: [Created], audit: ["*"] });

/** Three dead letters in each subscription; the second of `email` has a category. */
async function failThree(location: string, moreTypes: readonly string[] = []): Promise<number[]> {
  const bus = openBus({ location, topology });
  listenToBus(bus);
  for (const name of ["email", "audit"]) {
    bus.subscription(name).handler("*", ({ data }) => {
      throw new Reject(`no ${name}`, { category: `number ${(data as { n: number }).n}` });
    });
  }
  const events = [1, 2, 3].map((n) => Created({ n }));
  const receipts = await bus.dispatchMany([...events, ...moreTypes.map((type) => defineEvent(type)({ n: 4 }))]);
  await bus.run(IDLE);
  await bus.close();
  return receipts.map(({ subscriptions, messageIds }) => messageIds[subscriptions.indexOf("email")] as number);
}

function overwrite(location: string, id: number, payload: string | Uint8Array): void {
  const database = openDatabase(location);
  database.prepare("UPDATE messages SET payload = CAST(:payload AS BLOB) WHERE id = :id").run({ id, payload });
  database.close();
}

describe("the dead letters of a subscription", () => {
  test("are listed with their events, and why they are there", async () => {
    const location = tempLocation();
    const ids = await failThree(location);
    const found = await openBus({ location, topology }).subscription("email").listFailed();
    expect(found.map(({ id }) => id)).toEqual(ids);
    const [first] = found;
    expect(first).toMatchObject({
      subscription: "email",
      eventType: "created",
      decoded: true,
      event: { type: "created", schema: "created@1", data: { n: 1 } },
      attempts: 1,
      reason: "rejected",
      category: "number 1",
      lastError: "Reject: no email",
      createdAt: expect.any(Date),
      updatedAt: expect.any(Date),
      rawPayload: expect.any(Uint8Array),
    });
    expect(first?.jobId).toBe(first?.decoded === true && first.event.id);
    expect((first?.updatedAt.getTime() ?? 0) >= (first?.createdAt.getTime() ?? 1)).toBe(true);
  });

  test("are paged and filtered", async () => {
    const location = tempLocation();
    const [one, two, three] = await failThree(location);
    const email = openBus({ location, topology }).subscription("email");
    const idsOf = async (options: object): Promise<number[]> => (await email.listFailed(options)).map(({ id }) => id);
    expect(await idsOf({ limit: 2 })).toEqual([one, two]);
    expect(await idsOf({ limit: 0 })).toEqual([]);
    expect(await idsOf({ afterId: one })).toEqual([two, three]);
    expect(await idsOf({ category: "number 2" })).toEqual([two]);
    expect(await idsOf({ reason: "handler_timeout" })).toEqual([]);
    await expect(idsOf({ limit: -1 })).rejects.toThrow("`limit`");
  });

  test("of a type that is not known here are listed with their bytes", async () => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    await failThree(location, ["strange"]);
    const [strange] = await bus.subscription("audit").listFailed({ category: "number 4" });
    expect(strange).toMatchObject({
      eventType: "strange",
      decoded: false,
      decodeError: 'Error: unknown event type "strange"',
    });
    expect(JSON.parse(Buffer.from(strange?.rawPayload ?? []).toString())).toMatchObject({ payload: { n: 4 } });
    // A handler for all types takes it as it is.
    bus.subscription("audit").handler("*", () => {});
    const [known] = await bus.subscription("audit").listFailed({ category: "number 4" });
    expect(known).toMatchObject({ decoded: true, event: { type: "strange", data: { n: 4 } } });
  });

  test.each([
    ["[1]", "Malformed envelope: expected a JSON object, got an array"],
    ['{"payload":{}}', "Malformed envelope: `event_type` is missing or no string"],
    ['{"event_type":"created"}', "Malformed envelope: `payload` is missing or no object"],
    ["{", "Malformed envelope: PayloadError"],
    [new Uint8Array([0xff]), "Malformed envelope: PayloadError"],
  ])("that cannot be read, such as %j, hide no others", async (payload, problem) => {
    const location = tempLocation();
    const [, second] = await failThree(location);
    overwrite(location, second as number, payload);
    const found = await openBus({ location, topology }).subscription("email").listFailed();
    expect(found.map(({ decoded }) => decoded)).toEqual([true, false, true]);
    expect(found[1]).toHaveProperty("decodeError", expect.stringContaining(problem));
    expect(Buffer.from(found[1]?.rawPayload ?? [])).toEqual(Buffer.from(payload as string));
  });

  test("are delivered again, with a fresh budget, and only in this subscription", async () => {
    const location = tempLocation();
    const [one, two, three] = (await failThree(location)) as [number, number, number];
    const bus = openBus({ location, topology });
    const email = bus.subscription("email");
    expect(await email.retryFailed(one)).toBe(1);
    expect(readRow(location, one)).toMatchObject({ status: 0, attempts: 0, failure_reason: null, last_error: null });
    await expect(email.retryFailed(one)).rejects.toThrow(NotFoundError);
    await expect(bus.subscription("audit").retryFailed(two)).rejects.toThrow(NotFoundError);
    expect(await email.retryFailed({ category: "number 2" })).toBe(1);
    const seen: unknown[] = [];
    email.handler(Created, ({ data }, { attempt }) => void seen.push([data.n, attempt]));
    await bus.run(IDLE);
    expect(seen).toEqual([
      [1, 1],
      [2, 1],
    ]);
    expect(await email.stats()).toMatchObject({ acked: 2, failed: 1 });
    expect(await bus.subscription("audit").stats()).toMatchObject({ failed: 3 });
    expect(await email.retryFailed({})).toBe(1);
    expect(readRow(location, three)).toMatchObject({ status: 0 });
    for (const id of ["1", true]) {
      await expect(email.retryFailed(id as never)).rejects.toThrow(TypeError);
    }
  });

  test("are deleted on demand, and those that are done when they are old enough", async () => {
    const location = tempLocation();
    const [one] = (await failThree(location)) as [number];
    const bus = openBus({ location, topology });
    const email = bus.subscription("email");
    expect(await email.purgeFailed(one)).toBe(1);
    await expect(email.purgeFailed({ id: one })).rejects.toThrow(NotFoundError);
    expect(await email.purgeFailed({})).toBe(2);
    expect(await bus.subscription("audit").stats()).toMatchObject({ failed: 3 });
    await bus.dispatch(Created({ n: 5 }));
    email.handler(Created, () => {});
    await bus.run(IDLE);
    expect(await email.purge({ olderThanMs: 60_000 })).toBe(0);
    expect(await email.purge({ olderThanMs: 0 })).toBe(1);
    expect(await email.stats()).toEqual({ ready: 0, processing: 0, acked: 0, failed: 0 });
  });
});

test.each([
  ["[1]", "invalid_envelope", "expected a JSON object, got an array"],
  ["{", "invalid_envelope", "Malformed envelope"],
  ['{"event_type":"created","payload":5}', "invalid_envelope", "`payload` is missing or no object"],
  ['{"event_type":"created","payload":{}}', "invalid_payload", "`event_created_at` is missing or no date and time"],
])(
  "a delivery such as %j becomes a dead letter at once, and the next event is handled",
  async (payload, reason, problem) => {
    const location = tempLocation();
    const bus = openBus({ location, topology });
    const told = listenToBus(bus);
    const [broken] = await bus.dispatchMany([Created({ n: 1 }), Created({ n: 2 })]);
    const id = broken?.messageIds[1] as number;
    overwrite(location, id, payload);
    bus.subscription("email").handler(Created, () => {});
    await bus.run(IDLE);
    expect(readRow(location, id)).toMatchObject({ status: 3, attempts: 1, failure_reason: reason });
    expect(readRow(location, id)["last_error"]).toContain(problem);
    const message = expect.stringContaining(
      `Delivery ${id} of subscription "email" became a dead letter (${reason}). `,
    );
    expect(told).toEqual([
      ["error", "email", expect.objectContaining({ code: "INVALID_EVENT", message })],
      ["event:acked", "email", { n: 2 }],
    ]);
  },
);
