import { expect, test } from "vitest";
import { IntroducedOrigins, KnownOrigins } from "../dist/storage/sqlite/origins.js";
import type { AnswerOf, Command, FromEngine, ToEngine } from "../dist/storage/sqlite/protocol.js";
import { packFromEngine, packToEngine, unpackFromEngine, unpackToEngine } from "../dist/storage/sqlite/wire.js";

const KIB = 1024;
const introduced = new IntroducedOrigins();
const known = new KnownOrigins();

function toEngine(message: ToEngine): { arrived: ToEngine; handedOver: number } {
  const transfer: ArrayBuffer[] = [];
  const packed = packToEngine(message, transfer, introduced);
  return { arrived: unpackToEngine(structuredClone(packed, { transfer }), known), handedOver: transfer.length };
}

function fromEngine(message: FromEngine): { arrived: FromEngine; handedOver: number } {
  const transfer: ArrayBuffer[] = [];
  const packed = packFromEngine(message, transfer);
  return { arrived: unpackFromEngine(structuredClone(packed, { transfer })), handedOver: transfer.length };
}

const one = { origin: { session: 1, queue: "default", fsync: false, text: true }, lockMs: 30_000 };
const other = { origin: { session: 2, queue: "another", fsync: true, text: false }, lockMs: 0 };
const limited = { ...one, origin: { ...one.origin, session: 3, maxPending: 100 } };
const unlimited = { waitMs: undefined };
const lease = { id: 17, receipt: "a receipt" };
const job = { payload: '{"a":"é"}', jobId: null, delayMs: 0, maxAttempts: 4, context: undefined };

const event = {
  payload: '{"a":"é"}',
  jobId: "event",
  queues: ["a", "b"],
  identity: { key: "k", fingerprint: "f" },
  maxAttempts: 4,
  context: "trace",
};
const plainEvent = { ...event, identity: undefined, context: undefined };

const commands: Command[] = [
  { op: "put", id: 0, ...one, ...unlimited, bytes: 300, entries: [job] },
  {
    op: "put",
    id: 1,
    ...other,
    ...unlimited,
    bytes: 600,
    entries: [
      { ...job, jobId: "known" },
      { ...job, context: "trace" },
    ],
  },
  { op: "put", id: 2, ...one, ...unlimited, bytes: 300, entries: [{ ...job, payload: new Uint8Array([0, 255, 7]) }] },
  { op: "put", id: 10, ...limited, waitMs: Infinity, bytes: 300, entries: [job] },
  { op: "put", id: 11, ...limited, waitMs: 0, bytes: 600, entries: [job, job] },
  { op: "claim", id: 3, ...one, limit: 5, leaseMs: 10, waitMs: Infinity, consumer: undefined, slot: undefined },
  { op: "claim", id: 4, ...one, limit: 1, leaseMs: 10, waitMs: 0, consumer: 9, slot: 0 },
  { op: "settle", id: 5, ...one, lease, move: { event: "ack" } },
  {
    op: "settle",
    id: 6,
    ...other,
    lease,
    move: { event: "nack", delayMs: 5, lastError: undefined, exhaustedReason: "retries_exhausted" },
  },
  { op: "extend", id: 7, ...one, lease, ms: 5 },
  { op: "reclaim", id: 8, ...one },
  { op: "stats", id: 9, ...other },
  { op: "alter", id: 10, ...one, verb: "replay", job: 17 },
  { op: "sweep", id: 11, ...limited, sweep: { kind: "purge", olderThanMs: 5, includeFailed: true } },
  { op: "sweep", id: 12, ...limited, sweep: { kind: "retryFailed", reason: "rejected", category: undefined } },
  { op: "dispatch", id: 14, ...other, bytes: 900, events: [event, plainEvent] },
  { op: "dispatch", id: 15, ...one, bytes: 0, events: [] },
  { op: "settle", id: 16, ...one, lease, move: { event: "ack" }, emit: { bytes: 900, events: [plainEvent, event] } },
  {
    op: "settle",
    id: 17,
    ...one,
    lease,
    move: {
      event: "release",
      backoff: { initialMs: 1, maxMs: 2, lastError: "E: e", exhaustedReason: "no_handler" },
    },
  },
  { op: "put", id: 13, ...one, ...unlimited, bytes: 300, entries: [{ ...job, context: "trace" }] },
];

test("commands arrive as they were sent", () => {
  expect(toEngine({ kind: "batch", commands }).arrived).toStrictEqual({ kind: "batch", commands });
  expect(toEngine({ kind: "abort", id: 3 }).arrived).toStrictEqual({ kind: "abort", id: 3 });
});

test("what commands have from their queue crosses once, and anew when that was closed", () => {
  const mine = new IntroducedOrigins();
  const theirs = new KnownOrigins();
  const stats: Command = { op: "stats", id: 1, ...one };
  const cross = (message: ToEngine): { sent: unknown; arrived: ToEngine } => {
    const sent = packToEngine(message, [], mine);
    return { sent, arrived: unpackToEngine(structuredClone(sent), theirs) };
  };
  const batch: ToEngine = { kind: "batch", commands: [stats, stats] };
  const [whole, number] = [
    ["stats", 1, one.origin, 30_000],
    ["stats", 1, 1, 30_000],
  ];
  expect(cross(batch)).toEqual({ sent: [whole, number], arrived: batch });
  expect(cross(batch)).toEqual({ sent: [number, number], arrived: batch });
  cross({ kind: "closeSession", session: 1 });
  expect(cross(batch)).toEqual({ sent: [whole, number], arrived: batch });
});

test("answers arrive as they were sent", () => {
  const delivery = { id: 1, receipt: "r", attempt: 2, leaseUntil: 4, enqueuedAt: 3, payload: new Uint8Array([1, 2]) };
  const reply: FromEngine = {
    kind: "reply",
    answers: [
      { id: 0, put: [{ id: 17, inserted: true }] },
      {
        id: 1,
        put: [
          { id: 1, inserted: false },
          { id: 18, inserted: true },
        ],
      },
      { id: 2, claimed: [] },
      {
        id: 3,
        claimed: [
          { ...delivery, jobId: "known", context: "trace" },
          { ...delivery, jobId: undefined, context: undefined },
        ],
      },
      { id: 4, settled: "acked" },
      { id: 5, refused: "lost" },
      { id: 6, stats: { ready: 1, processing: 2, acked: 3, failed: 4 } },
      { id: 7, error: { code: "BUSY", message: "locked", outcome: "failed", cause: undefined } },
      { id: 8, refused: "full" },
      { id: 9, changed: 3 },
      { id: 10, refused: "missing" },
      { id: 11, dispatched: [[{ id: 19, inserted: true }], [], [{ id: 20, inserted: false }]] },
      { id: 12, conflict: { jobId: "event", queue: "a" } },
    ],
    news: [{ consumer: 9, receipt: "r", news: "renewed", leaseUntil: 5 }],
    batches: 1,
    watch: true,
    moveLog: true,
  };
  const { arrived } = fromEngine(reply);
  const byId = (answers: readonly { readonly id: number }[]) => [...answers].sort((a, b) => a.id - b.id);
  expect({ ...arrived, answers: byId((arrived as typeof reply).answers) }).toStrictEqual(reply);
  expect(fromEngine({ kind: "ready", warnings: [] }).arrived).toStrictEqual({ kind: "ready", warnings: [] });
});

test("a large payload is handed over rather than copied, text as UTF-8", () => {
  const text = "é".repeat(64 * KIB);
  const bytes = new Uint8Array(64 * KIB).fill(7);
  const entries = [
    { ...job, payload: text },
    { ...job, payload: bytes },
    { ...job, payload: "x".repeat(64 * KIB - 1) },
  ];
  const { arrived, handedOver } = toEngine({
    kind: "batch",
    commands: [{ op: "put", id: 0, ...one, bytes: 0, entries }],
  });
  expect(handedOver).toBe(2);
  const [command] = (arrived as Extract<ToEngine, { kind: "batch" }>).commands as [Extract<Command, { op: "put" }>];
  const payloads = command.entries.map(({ payload }) => payload);
  expect(Buffer.from(payloads[0] as Uint8Array).toString()).toBe(text);
  expect(payloads[1]).toStrictEqual(new Uint8Array(64 * KIB).fill(7));
  expect(payloads[2]).toBe("x".repeat(64 * KIB - 1));
  expect(bytes.byteLength).toBe(0);
});

test("a large event is handed over once, however many queues it is for; so is one that is emitted", () => {
  const text = "é".repeat(64 * KIB);
  const events = [{ ...event, payload: text }, event];
  const { arrived, handedOver } = toEngine({
    kind: "batch",
    commands: [
      { op: "dispatch", id: 0, ...one, bytes: 0, events },
      { op: "settle", id: 1, ...one, lease, move: { event: "ack" }, emit: { bytes: 0, events } },
    ],
  });
  expect(handedOver).toBe(2);
  const [dispatch, settle] = (arrived as Extract<ToEngine, { kind: "batch" }>).commands as [
    Extract<Command, { op: "dispatch" }>,
    Extract<Command, { op: "settle" }>,
  ];
  for (const [large, small] of [dispatch.events, settle.emit?.events ?? []]) {
    expect(Buffer.from(large?.payload as Uint8Array).toString() === text).toBe(true);
    expect({ ...large, payload: event.payload }).toEqual(event);
    expect(small).toEqual(event);
  }
});

test("a payload travels without its neighbours in the memory that it shares", () => {
  const memory = new Uint8Array(100).fill(1);
  const delivery = {
    id: 1,
    receipt: "r",
    attempt: 1,
    jobId: undefined,
    leaseUntil: 4,
    enqueuedAt: 3,
    context: undefined,
  };
  const { arrived } = fromEngine({
    kind: "reply",
    answers: [{ id: 0, claimed: [{ ...delivery, payload: memory.subarray(10, 13) }] }],
    news: [],
    batches: 0,
    watch: false,
    moveLog: false,
  });
  const [answer] = (arrived as Extract<FromEngine, { kind: "reply" }>).answers;
  const [first] = (answer as AnswerOf<"claimed">).claimed;
  const payload = first?.payload as Uint8Array;
  expect([...payload, payload.buffer.byteLength]).toEqual([1, 1, 1, 3]);
});
