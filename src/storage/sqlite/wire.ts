import type { JobState } from "../../state.ts";
import type { Delivery, Enqueued, Settlement } from "../storage.ts";
import type { IntroducedOrigins, KnownOrigins, OriginOnWire } from "./origins.ts";
import type {
  AlterCommand,
  Answer,
  Command,
  FromEngine,
  NewEvent,
  NewJob,
  SweepRequest,
  ToEngine,
} from "./protocol.ts";

/**
 * How commands and answers cross from thread to thread: as tuples. Objects would carry the names of their fields with
 * each of them, at six times the cost.
 */

/** From this size on a payload's memory is handed over, which takes no time; below it, a copy is cheaper. */
const LARGE_BYTES = 64 * 1024;

const encoder = new TextEncoder();

type Header<Op extends string> = readonly [op: Op, id: number, origin: OriginOnWire, lockMs: number];

type PackedJob = readonly [
  payload: NewJob["payload"],
  jobId: string | null,
  delayMs: number,
  maxAttempts: number,
  /** Left out if there is none: as a rule. */
  context?: string,
];

type PackedEvent = readonly [
  payload: NewEvent["payload"],
  jobId: string,
  queues: readonly string[],
  maxAttempts: number,
  identity: NewEvent["identity"],
  context: string | undefined,
];

type PackedCommand =
  /** One job, as a rule: without arrays of its own. */
  | readonly [...Header<"put">, bytes: number, waitMs: number | undefined, ...PackedJob]
  | readonly [...Header<"putMany">, bytes: number, waitMs: number | undefined, jobs: readonly PackedJob[]]
  | readonly [
      ...Header<"claim">,
      limit: number,
      leaseMs: number,
      waitMs: number,
      consumer: number | undefined,
      slot: number | undefined,
    ]
  | readonly [...Header<"dispatch">, bytes: number, events: readonly PackedEvent[]]
  | readonly [...Header<"settle">, job: number, receipt: string, move: Settlement]
  | readonly [
      ...Header<"emit">,
      job: number,
      receipt: string,
      move: Settlement,
      bytes: number,
      events: readonly PackedEvent[],
    ]
  | readonly [...Header<"extend">, job: number, receipt: string, ms: number]
  | readonly [...Header<"alter">, verb: AlterCommand["verb"], job: number]
  | readonly [...Header<"sweep">, sweep: SweepRequest]
  | Header<"reclaim">
  | Header<"stats">;

type OtherToEngine = Exclude<ToEngine, { kind: "batch" }>;
export type PackedToEngine = readonly PackedCommand[] | OtherToEngine;

/** Adds to `transfer` the memory that is handed over. */
export function packToEngine(message: ToEngine, transfer: ArrayBuffer[], origins: IntroducedOrigins): PackedToEngine {
  if (message.kind === "batch") return message.commands.map((command) => packCommand(command, transfer, origins));
  if (message.kind === "closeSession") origins.forget(message.session);
  return message;
}

function packCommand(command: Command, transfer: ArrayBuffer[], origins: IntroducedOrigins): PackedCommand {
  const { id, lockMs } = command;
  const origin = origins.pack(command.origin);
  switch (command.op) {
    case "put": {
      const { bytes, waitMs, entries } = command;
      const jobs = entries.map((job) => packJob(job, transfer));
      const [first] = jobs;
      if (first !== undefined && jobs.length === 1) return ["put", id, origin, lockMs, bytes, waitMs, ...first];
      return ["putMany", id, origin, lockMs, bytes, waitMs, jobs];
    }
    case "claim": {
      const { limit, leaseMs, waitMs, consumer, slot } = command;
      return ["claim", id, origin, lockMs, limit, leaseMs, waitMs, consumer, slot];
    }
    case "dispatch": {
      const { bytes, events } = command;
      return ["dispatch", id, origin, lockMs, bytes, events.map((event) => packEvent(event, transfer))];
    }
    case "settle": {
      const { lease, move, emit } = command;
      if (emit === undefined) return ["settle", id, origin, lockMs, lease.id, lease.receipt, move];
      const events = emit.events.map((event) => packEvent(event, transfer));
      return ["emit", id, origin, lockMs, lease.id, lease.receipt, move, emit.bytes, events];
    }
    case "extend":
      return ["extend", id, origin, lockMs, command.lease.id, command.lease.receipt, command.ms];
    case "alter":
      return ["alter", id, origin, lockMs, command.verb, command.job];
    case "sweep":
      return ["sweep", id, origin, lockMs, command.sweep];
    case "reclaim":
    case "stats":
      return [command.op, id, origin, lockMs];
  }
}

function packEvent(event: NewEvent, transfer: ArrayBuffer[]): PackedEvent {
  const { payload, jobId, queues, maxAttempts, identity, context } = event;
  return [packPayload(payload, transfer), jobId, queues, maxAttempts, identity, context];
}

function packPayload(payload: Uint8Array | string, transfer: ArrayBuffer[]): Uint8Array | string {
  const long = typeof payload === "string" && payload.length >= LARGE_BYTES;
  const packed = long ? encoder.encode(payload) : payload;
  return typeof packed === "string" ? packed : packBytes(packed, transfer);
}

function packJob({ payload, jobId, delayMs, maxAttempts, context }: NewJob, transfer: ArrayBuffer[]): PackedJob {
  const own = packPayload(payload, transfer);
  return context === undefined ? [own, jobId, delayMs, maxAttempts] : [own, jobId, delayMs, maxAttempts, context];
}

function packBytes(bytes: Uint8Array, transfer: ArrayBuffer[]): Uint8Array {
  // A view would take all the memory along that it is a view of.
  const own = bytes.byteLength === bytes.buffer.byteLength ? bytes : Uint8Array.prototype.slice.call(bytes);
  if (own.byteLength >= LARGE_BYTES) transfer.push(own.buffer as ArrayBuffer);
  return own;
}

export function unpackToEngine(message: PackedToEngine, origins: KnownOrigins): ToEngine {
  if (isBatch(message)) return { kind: "batch", commands: message.map((packed) => unpackCommand(packed, origins)) };
  if (message.kind === "closeSession") origins.forget(message.session);
  return message;
}

function isBatch(message: PackedToEngine): message is readonly PackedCommand[] {
  return Array.isArray(message);
}

function unpackCommand(packed: PackedCommand, origins: KnownOrigins): Command {
  const [, id, sender, lockMs] = packed;
  const origin = origins.unpack(sender);
  switch (packed[0]) {
    case "put": {
      const [op, , , , bytes, waitMs, payload, jobId, delayMs, maxAttempts, context] = packed;
      return { origin, op, id, lockMs, bytes, waitMs, entries: [{ payload, jobId, delayMs, maxAttempts, context }] };
    }
    case "putMany": {
      const [, , , , bytes, waitMs, jobs] = packed;
      return { origin, op: "put", id, lockMs, bytes, waitMs, entries: jobs.map(unpackJob) };
    }
    case "claim": {
      const [op, , , , limit, leaseMs, waitMs, consumer, slot] = packed;
      return { origin, op, id, lockMs, limit, leaseMs, waitMs, consumer, slot };
    }
    case "settle": {
      const [op, , , , job, receipt, move] = packed;
      return { origin, op, id, lockMs, lease: { id: job, receipt }, move };
    }
    case "emit": {
      const [, , , , job, receipt, move, bytes, events] = packed;
      const emit = { bytes, events: events.map(unpackEvent) };
      return { origin, op: "settle", id, lockMs, lease: { id: job, receipt }, move, emit };
    }
    case "dispatch": {
      const [op, , , , bytes, events] = packed;
      return { origin, op, id, lockMs, bytes, events: events.map(unpackEvent) };
    }
    case "extend": {
      const [op, , , , job, receipt, ms] = packed;
      return { origin, op, id, lockMs, lease: { id: job, receipt }, ms };
    }
    case "alter": {
      const [op, , , , verb, job] = packed;
      return { origin, op, id, lockMs, verb, job };
    }
    case "sweep": {
      const [op, , , , sweep] = packed;
      return { origin, op, id, lockMs, sweep };
    }
    default:
      return { origin, op: packed[0], id, lockMs };
  }
}

function unpackJob([payload, jobId, delayMs, maxAttempts, context]: PackedJob): NewJob {
  return { payload, jobId, delayMs, maxAttempts, context };
}

function unpackEvent([payload, jobId, queues, maxAttempts, identity, context]: PackedEvent): NewEvent {
  return { payload, jobId, queues, maxAttempts, identity, context };
}

type PackedDelivery = readonly [
  id: number,
  receipt: string,
  payload: Uint8Array | string,
  attempt: number,
  jobId: string | undefined,
  leaseUntil: number,
  enqueuedAt: number,
  context?: string,
];

type PackedAnswer =
  | readonly [form: "settled", id: number, state: JobState]
  | readonly [form: "dispatched", id: number, ...outcomes: number[][]]
  | readonly [form: "claimed", id: number, ...deliveries: PackedDelivery[]]
  | Exclude<Answer, { settled: unknown } | { dispatched: unknown } | { claimed: unknown }>;

type Reply = Extract<FromEngine, { kind: "reply" }>;
type PackedReply = readonly [
  /**
   * The answers to puts of one job, two numbers each: the command's, and the job's as of `packOutcome`.
   */
  puts: readonly number[],
  answers: readonly PackedAnswer[],
  news: Reply["news"],
  batches: number,
  watch: boolean,
  moveLog: boolean,
];
export type PackedFromEngine = PackedReply | Exclude<FromEngine, Reply>;

export function packFromEngine(message: FromEngine, transfer: ArrayBuffer[]): PackedFromEngine {
  if (message.kind !== "reply") return message;
  const { answers, news, batches, watch, moveLog } = message;
  const puts: number[] = [];
  const others: PackedAnswer[] = [];
  for (const answer of answers) {
    const [job, ...more] = "put" in answer ? answer.put : [];
    if (job !== undefined && more.length === 0) puts.push(answer.id, packOutcome(job));
    else others.push(packAnswer(answer, transfer));
  }
  return [puts, others, news, batches, watch, moveLog];
}

function packAnswer(answer: Answer, transfer: ArrayBuffer[]): PackedAnswer {
  if ("settled" in answer) return ["settled", answer.id, answer.settled];
  if ("dispatched" in answer)
    return ["dispatched", answer.id, ...answer.dispatched.map((outcomes) => outcomes.map(packOutcome))];
  if ("claimed" in answer) return ["claimed", answer.id, ...answer.claimed.map((each) => packDelivery(each, transfer))];
  return answer;
}

/** A job's number, negative if the job was there already. */
function packOutcome({ id, inserted }: Enqueued): number {
  return inserted ? id : -id;
}

function unpackOutcome(job: number): Enqueued {
  return { id: Math.abs(job), inserted: job > 0 };
}

function packDelivery(delivery: Delivery, transfer: ArrayBuffer[]): PackedDelivery {
  const { id, receipt, payload, attempt, jobId, leaseUntil, enqueuedAt, context } = delivery;
  const packed = typeof payload === "string" ? payload : packBytes(payload, transfer);
  if (context === undefined) return [id, receipt, packed, attempt, jobId, leaseUntil, enqueuedAt];
  return [id, receipt, packed, attempt, jobId, leaseUntil, enqueuedAt, context];
}

export function unpackFromEngine(message: PackedFromEngine): FromEngine {
  if (!isReply(message)) return message;
  const [puts, others, news, batches, watch, moveLog] = message;
  const answers = others.map(unpackAnswer);
  for (let i = 0; i < puts.length; i += 2) {
    const [id, job] = [puts[i] as number, puts[i + 1] as number];
    answers.push({ id, put: [unpackOutcome(job)] });
  }
  return { kind: "reply", answers, news, batches, watch, moveLog };
}

function isReply(message: PackedFromEngine): message is PackedReply {
  return Array.isArray(message);
}

function unpackAnswer(packed: PackedAnswer): Answer {
  if ("id" in packed) return packed;
  if (packed[0] === "settled") return { id: packed[1], settled: packed[2] };
  if (packed[0] === "dispatched") {
    const [, id, ...outcomes] = packed;
    return { id, dispatched: outcomes.map((jobs) => jobs.map(unpackOutcome)) };
  }
  const [, id, ...deliveries] = packed;
  return { id, claimed: deliveries.map(unpackDelivery) };
}

function unpackDelivery(packed: PackedDelivery): Delivery {
  const [id, receipt, payload, attempt, jobId, leaseUntil, enqueuedAt, context] = packed;
  return { id, receipt, payload, attempt, jobId, leaseUntil, enqueuedAt, context };
}
