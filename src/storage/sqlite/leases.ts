import { type HeldLease, HeldLeases } from "../held-leases.ts";
import type { Step } from "./group-commit.ts";
import type { Transitions } from "./transitions.ts";

/** The leases that the engine renews, as steps of its batches. */
export class Leases extends HeldLeases {
  /** Keeps the handlers' time; returns steps for those whose grace is over too. */
  overdueSteps(now: number): Step[] {
    return this.takeOverdue(now).map((held) => new OverdueStep(held));
  }

  /** Renews what is due, in one step. */
  renewalStep(now: number, clientSilentMs: number): Step | undefined {
    const due = this.dueForRenewal(now, clientSilentMs);
    if (due.length === 0) return undefined;
    const untils = new Map<HeldLease, number | undefined>();
    return {
      fsync: false,
      compound: false,
      execute: (transitions) => {
        for (const held of due) {
          const { queue, leaseMs } = held.consumer.settings;
          untils.set(held, transitions.renew(queue, held, leaseMs));
        }
      },
      succeed: () => {
        for (const [held, leaseUntil] of untils) this.renewed(held, leaseUntil);
      },
      fail: ({ code }) => {
        for (const held of due) this.postpone(held, code === "DISK_FULL" ? 250 : 100);
      },
    };
  }
}

/** A handler overran its time and does not come back: should its lease end, the dead letter says why. */
class OverdueStep implements Step {
  readonly fsync = false;
  readonly compound = false;
  readonly #held: HeldLease;

  constructor(held: HeldLease) {
    this.#held = held;
  }

  execute(transitions: Transitions): void {
    transitions.markOverdue(this.#held.consumer.settings.queue, this.#held);
  }

  succeed(): void {}
  fail(): void {}
}
