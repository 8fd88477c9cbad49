import type { JobState } from "../../state.ts";
import type { Delivery, Settlement } from "../storage.ts";
import type { Answer, Command, FromEngine, NewJob, Origin, ToEngine } from "./protocol.ts";

/**
 * How commands and answers cross from thread to thread: as tuples. Objects would carry the names of their fields with
 * each of them, at six times the cost.
 */

/** From this size on a payload's memory is handed over, which takes no time; below it, a copy is cheaper. */
const LARGE_BYTES = 64 * 1024;

const encoder = new TextEncoder();

type Header<Op extends string> = readonly [op: Op, id: number, origin: Origin, lockMs: number];

type PackedJob = readonly [payload: NewJob["payload"], jobId: string | null, delayMs: number, maxAttempts: number];

type PackedCommand =
  /** One job, as a rule: without arrays of its own. */
  | readonly [...Header<"put">, bytes: number, ...PackedJob]
  | readonly [...Header<"putMany">, bytes: number, jobs: readonly PackedJob[]]
  | readonly [
      ...Header<"claim">,
      limit: number,
      leaseMs: number,
      waitMs: number,
      consumer: number | undefined,
      slot: number | undefined,
    ]
  | readonly [...Header<"settle">, job: number, receipt: string, move: Settlement]
  | readonly [...Header<"extend">, job: number, receipt: string, ms: number]
  | Header<"reclaim">
  | Header<"stats">;

type OtherToEngine = Exclude<ToEngine, { kind: "batch" }>;
export type PackedToEngine = readonly PackedCommand[] | OtherToEngine;

/** Adds to `transfer` the memory that is handed over. */
export function packToEngine(message: ToEngine, transfer: ArrayBuffer[]): PackedToEngine {
  if (message.kind !== "batch") return message;
  let origin: Origin | undefined;
  return message.commands.map((command) => {
    // One object for all that have it in common: a message contains each object once.
    if (command.session !== origin?.session) {
      origin = { session: command.session, queue: command.queue, fsync: command.fsync, text: command.text };
    }
    return packCommand(command, origin, transfer);
  });
}

function packCommand(command: Command, origin: Origin, transfer: ArrayBuffer[]): PackedCommand {
  const { id, lockMs } = command;
  switch (command.op) {
    case "put": {
      const { bytes, entries } = command;
      const jobs = entries.map((job) => packJob(job, transfer));
      const [first] = jobs;
      if (first !== undefined && jobs.length === 1) return ["put", id, origin, lockMs, bytes, ...first];
      return ["putMany", id, origin, lockMs, bytes, jobs];
    }
    case "claim": {
      const { limit, leaseMs, waitMs, consumer, slot } = command;
      return ["claim", id, origin, lockMs, limit, leaseMs, waitMs, consumer, slot];
    }
    case "settle":
      return ["settle", id, origin, lockMs, command.lease.id, command.lease.receipt, command.move];
    case "extend":
      return ["extend", id, origin, lockMs, command.lease.id, command.lease.receipt, command.ms];
    case "reclaim":
    case "stats":
      return [command.op, id, origin, lockMs];
  }
}

function packJob({ payload, jobId, delayMs, maxAttempts }: NewJob, transfer: ArrayBuffer[]): PackedJob {
  const long = typeof payload === "string" && payload.length >= LARGE_BYTES;
  const packed = long ? encoder.encode(payload) : payload;
  return [typeof packed === "string" ? packed : packBytes(packed, transfer), jobId, delayMs, maxAttempts];
}

function packBytes(bytes: Uint8Array, transfer: ArrayBuffer[]): Uint8Array {
  // A view would take all the memory along that it is a view of.
  const own = bytes.byteLength === bytes.buffer.byteLength ? bytes : Uint8Array.prototype.slice.call(bytes);
  if (own.byteLength >= LARGE_BYTES) transfer.push(own.buffer as ArrayBuffer);
  return own;
}

export function unpackToEngine(message: PackedToEngine): ToEngine {
  return isBatch(message) ? { kind: "batch", commands: message.map(unpackCommand) } : message;
}

function isBatch(message: PackedToEngine): message is readonly PackedCommand[] {
  return Array.isArray(message);
}

function unpackCommand(packed: PackedCommand): Command {
  const [, id, { session, queue, fsync, text }, lockMs] = packed;
  switch (packed[0]) {
    case "put": {
      const [op, , , , bytes, payload, jobId, delayMs, maxAttempts] = packed;
      return {
        op,
        id,
        session,
        queue,
        fsync,
        text,
        lockMs,
        bytes,
        entries: [{ payload, jobId, delayMs, maxAttempts }],
      };
    }
    case "putMany": {
      const [, , , , bytes, jobs] = packed;
      return { op: "put", id, session, queue, fsync, text, lockMs, bytes, entries: jobs.map(unpackJob) };
    }
    case "claim": {
      const [op, , , , limit, leaseMs, waitMs, consumer, slot] = packed;
      return { op, id, session, queue, fsync, text, lockMs, limit, leaseMs, waitMs, consumer, slot };
    }
    case "settle": {
      const [op, , , , job, receipt, move] = packed;
      return { op, id, session, queue, fsync, text, lockMs, lease: { id: job, receipt }, move };
    }
    case "extend": {
      const [op, , , , job, receipt, ms] = packed;
      return { op, id, session, queue, fsync, text, lockMs, lease: { id: job, receipt }, ms };
    }
    default:
      return { op: packed[0], id, session, queue, fsync, text, lockMs };
  }
}

function unpackJob([payload, jobId, delayMs, maxAttempts]: PackedJob): NewJob {
  return { payload, jobId, delayMs, maxAttempts };
}

type PackedDelivery = readonly [
  id: number,
  receipt: string,
  payload: Uint8Array | string,
  attempt: number,
  jobId: string | undefined,
  leaseUntil: number,
  enqueuedAt: number,
];

type PackedAnswer =
  | readonly [form: "settled", id: number, state: JobState]
  | readonly [form: "claimed", id: number, ...deliveries: PackedDelivery[]]
  | Exclude<Answer, { settled: unknown } | { claimed: unknown }>;

type Reply = Extract<FromEngine, { kind: "reply" }>;
type PackedReply = readonly [
  /**
   * The answers to puts of one job, two numbers each: the command's, and the job's, which is negative if the job was
   * there already.
   */
  puts: readonly number[],
  answers: readonly PackedAnswer[],
  news: Reply["news"],
  batches: number,
  watch: boolean,
];
export type PackedFromEngine = PackedReply | Exclude<FromEngine, Reply>;

export function packFromEngine(message: FromEngine, transfer: ArrayBuffer[]): PackedFromEngine {
  if (message.kind !== "reply") return message;
  const { answers, news, batches, watch } = message;
  const puts: number[] = [];
  const others: PackedAnswer[] = [];
  for (const answer of answers) {
    const [job, ...more] = "put" in answer ? answer.put : [];
    if (job !== undefined && more.length === 0) puts.push(answer.id, job.inserted ? job.id : -job.id);
    else others.push(packAnswer(answer, transfer));
  }
  return [puts, others, news, batches, watch];
}

function packAnswer(answer: Answer, transfer: ArrayBuffer[]): PackedAnswer {
  if ("settled" in answer) return ["settled", answer.id, answer.settled];
  if ("claimed" in answer) return ["claimed", answer.id, ...answer.claimed.map((each) => packDelivery(each, transfer))];
  return answer;
}

function packDelivery(delivery: Delivery, transfer: ArrayBuffer[]): PackedDelivery {
  const { id, receipt, payload, attempt, jobId, leaseUntil, enqueuedAt } = delivery;
  const packed = typeof payload === "string" ? payload : packBytes(payload, transfer);
  return [id, receipt, packed, attempt, jobId, leaseUntil, enqueuedAt];
}

export function unpackFromEngine(message: PackedFromEngine): FromEngine {
  if (!isReply(message)) return message;
  const [puts, others, news, batches, watch] = message;
  const answers = others.map(unpackAnswer);
  for (let i = 0; i < puts.length; i += 2) {
    const [id, job] = [puts[i] as number, puts[i + 1] as number];
    answers.push({ id, put: [{ id: Math.abs(job), inserted: job > 0 }] });
  }
  return { kind: "reply", answers, news, batches, watch };
}

function isReply(message: PackedFromEngine): message is PackedReply {
  return Array.isArray(message);
}

function unpackAnswer(packed: PackedAnswer): Answer {
  if ("id" in packed) return packed;
  if (packed[0] === "settled") return { id: packed[1], settled: packed[2] };
  const [, id, ...deliveries] = packed;
  return { id, claimed: deliveries.map(unpackDelivery) };
}

function unpackDelivery(packed: PackedDelivery): Delivery {
  const [id, receipt, payload, attempt, jobId, leaseUntil, enqueuedAt] = packed;
  return { id, receipt, payload, attempt, jobId, leaseUntil, enqueuedAt };
}
