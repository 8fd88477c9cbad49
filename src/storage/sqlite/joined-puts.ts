import type { StorageError } from "../../errors.ts";
import type { Sign, Step } from "./group-commit.ts";
import { PUT_ROWS } from "./statements.ts";
import { PutStep } from "./steps.ts";
import type { Transitions } from "./transitions.ts";

/** Puts of several callers into one queue, which take a third less time in one statement than in one for each. */
class JoinedPuts implements Step {
  readonly compound = false;
  readonly refusedWhen = "short";
  readonly parts: readonly PutStep[];

  constructor(parts: readonly PutStep[]) {
    this.parts = parts;
  }

  get fsync(): boolean {
    return this.parts.some(({ fsync }) => fsync);
  }

  execute(transitions: Transitions): void {
    PutStep.executeAll(this.parts, transitions);
  }

  confirmed(transitions: Transitions): Sign {
    const signs = this.parts.map((part) => part.confirmed(transitions));
    return signs.includes(true) ? true : signs.includes(false) ? false : undefined;
  }

  succeed(): void {
    for (const part of this.parts) part.succeed();
  }

  fail(error: StorageError): void {
    for (const part of this.parts) part.fail(error);
  }
}

/** The same steps in the same order; puts that follow each other in numbers become one. */
export function joinPuts(steps: readonly Step[]): readonly Step[] {
  const joined: Step[] = [];
  for (let i = 0; i < steps.length; ) {
    const puts = putsFrom(steps, i);
    if (puts.length >= PUT_ROWS) joined.push(new JoinedPuts(puts));
    else joined.push(...steps.slice(i, i + Math.max(puts.length, 1)));
    i += Math.max(puts.length, 1);
  }
  return joined;
}

/** Those from there on that may be done in one statement, if any. */
function putsFrom(steps: readonly Step[], start: number): PutStep[] {
  const puts: PutStep[] = [];
  for (let i = start; i < steps.length; i++) {
    const step = steps[i];
    if (!(step instanceof PutStep && step.joinable)) break;
    if (puts[0] !== undefined && step.command.origin.queue !== puts[0].command.origin.queue) break;
    puts.push(step);
  }
  return puts;
}
