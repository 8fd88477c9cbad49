import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EVENTS, type JobFacts, type JobOutcome, MAX_RELEASES, STATES, transition } from "../dist/state.js";

const budgets = fc.integer({ min: 1, max: 6 });
const histories = fc.array(fc.constantFrom(...EVENTS), { maxLength: 80 });

/** Plays the events that the state machine allows; returns each job as it was after one of them. */
function play(maxAttempts: number, events: readonly (typeof EVENTS)[number][]): JobOutcome[] {
  let job: JobFacts = { state: "ready", attempts: 0, maxAttempts, releases: 0 };
  return events.flatMap((event) => {
    const outcome = transition(job, event);
    if (outcome === undefined) return [];
    const { reason, ...facts } = outcome;
    job = facts;
    return [outcome];
  });
}

describe("whatever happens to a job", () => {
  test("it is never delivered more often than its budget allows", () => {
    fc.assert(
      fc.property(budgets, histories, (budget, events) => {
        for (const { attempts } of play(budget, events)) expect(attempts).toBeLessThanOrEqual(budget);
      }),
    );
  });

  test("its deliveries end: given back or not, only so many are possible", () => {
    fc.assert(
      fc.property(
        budgets,
        fc.array(fc.constantFrom("release", "nack", "expire"), { maxLength: 400 }),
        (budget, ends) => {
          const states = play(
            budget,
            ends.flatMap((end) => ["claim", end] as const),
          ).map(({ state }) => state);
          const deliveries = states.filter((state) => state === "processing").length;
          expect(deliveries).toBeLessThanOrEqual(budget * (MAX_RELEASES + 1));
        },
      ),
    );
  });

  test("once acked it stays so, and a dead letter until it is replayed", () => {
    fc.assert(
      fc.property(budgets, histories, fc.boolean(), (budget, history, replays) => {
        const events = replays ? history : history.filter((event) => event !== "replay");
        const states = play(budget, events).map(({ state }) => state);
        const end = states.findIndex((state) => state === "acked" || (state === "failed" && !replays));
        if (end >= 0) expect(states).toHaveLength(end + 1);
      }),
    );
  });

  test("it is given back uncounted at most ten times in a row", () => {
    fc.assert(
      fc.property(budgets, histories, (budget, events) => {
        for (const { releases } of play(budget, events)) expect(releases).toBeLessThanOrEqual(MAX_RELEASES);
      }),
    );
  });
});

test("a state's number is its place in the list", () => {
  expect(STATES).toEqual(["ready", "processing", "acked", "failed"]);
});
