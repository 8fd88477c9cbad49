import { AlterStep } from "./alter.ts";
import { DispatchStep } from "./dispatch.ts";
import type { Leases } from "./leases.ts";
import type { Outbox } from "./outbox.ts";
import type { ClaimCommand, Command, StatsCommand, SweepCommand } from "./protocol.ts";
import type { Room } from "./room.ts";
import { type CommandStep, ExtendStep, PutStep, ReclaimStep, SettleStep } from "./steps.ts";

interface StepContext {
  readonly outbox: Outbox;
  readonly room: Room;
  readonly leases: Leases;
  /** Told when a job was removed, replayed or discarded. */
  readonly altered: () => void;
}

/** A command as the step of a batch. Claims, counts and sweeps are not done at once, and have places of their own. */
export function stepOf(
  command: Exclude<Command, ClaimCommand | StatsCommand | SweepCommand>,
  now: number,
  { outbox, room, leases, altered }: StepContext,
): CommandStep {
  const lockEndsAt = now + command.lockMs;
  switch (command.op) {
    case "put":
      if (command.origin.maxPending !== undefined) return room.stepOf(command, now);
      return new PutStep(command, lockEndsAt, outbox);
    case "dispatch":
      return new DispatchStep(command, lockEndsAt, outbox);
    case "settle":
      return new SettleStep(command, lockEndsAt, outbox, (receipt) => leases.delete(receipt));
    case "extend":
      return new ExtendStep(command, lockEndsAt, outbox, (receipt, ms) => leases.extended(receipt, ms));
    case "reclaim":
      return new ReclaimStep(command, lockEndsAt, outbox);
    case "alter":
      return new AlterStep(command, lockEndsAt, outbox, altered);
  }
}
