import type { StorageError } from "../../errors.ts";
import type { Joint, Step } from "./group-commit.ts";
import { ACK_ROWS, PUT_ROWS } from "./statements.ts";
import { PutStep, SettleStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

type Part = PutStep | SettleStep;

/** Puts, or acks, of several callers and of one queue, which take less time in one statement than in one for each. */
class JoinedSteps implements Joint {
  readonly compound = false;
  readonly refusedWhen: "short" | undefined;
  readonly parts: readonly Part[];

  constructor(parts: readonly Part[]) {
    this.parts = parts;
    this.refusedWhen = parts[0]?.refusedWhen;
  }

  get fsync(): boolean {
    return this.parts.some(({ fsync }) => fsync);
  }

  execute(transitions: Transitions): void {
    if (this.parts[0] instanceof PutStep) PutStep.executeAll(this.parts as readonly PutStep[], transitions);
    else SettleStep.executeAll(this.parts as readonly SettleStep[], transitions);
  }

  fail(error: StorageError): void {
    for (const part of this.parts) part.fail(error);
  }
}

/** The same steps in the same order; those that follow each other in numbers, and are alike, become one. */
export function joinSteps(steps: readonly Step[]): readonly (Step | Joint)[] {
  const joined: (Step | Joint)[] = [];
  for (let i = 0; i < steps.length; ) {
    const alike = alikeFrom(steps, i);
    const rows = alike[0] instanceof PutStep ? PUT_ROWS : ACK_ROWS;
    if (alike.length >= rows) joined.push(new JoinedSteps(alike));
    else joined.push(...steps.slice(i, i + Math.max(alike.length, 1)));
    i += Math.max(alike.length, 1);
  }
  return joined;
}

/** Those from there on that may be done in one statement, if any. */
function alikeFrom(steps: readonly Step[], start: number): Part[] {
  const alike: Part[] = [];
  for (let i = start; i < steps.length; i++) {
    const step = steps[i];
    if (!((step instanceof PutStep || step instanceof SettleStep) && step.joinable)) break;
    const [first] = alike;
    if (first !== undefined && !isLike(step, first)) break;
    alike.push(step);
  }
  return alike;
}

function isLike(a: Part, b: Part): boolean {
  return a.constructor === b.constructor && a.command.origin.queue === b.command.origin.queue;
}
