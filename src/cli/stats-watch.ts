import { setTimeout as sleep } from "node:timers/promises";
import type { SimpleQueue } from "../index.ts";
import type { Arguments } from "./arguments.ts";
import { outgrown } from "./outgrown.ts";
import { isScreen, print, printJson, tell } from "./output.ts";
import { again } from "./queue-access.ts";
import { Screen } from "./screen.ts";
import { onFirstSignal } from "./signals.ts";
import { StatsHistory, type Tick } from "./stats-history.ts";
import { rateText, viewOf } from "./stats-view.ts";
import { grouped } from "./wording.ts";

/** Tells the counts again and again, until a signal, or until nobody reads them. */
export async function watchStats(args: Arguments, queue: SimpleQueue<Uint8Array>, intervalMs: number): Promise<void> {
  const ending = new AbortController();
  const end = (): void => ending.abort();
  const forgetSignals = onFirstSignal(end);
  process.stdout.on("error", end);
  const history = new StatsHistory();
  const show = args.has("json") ? printJson : isScreen() ? undefined : lineByLine(args);
  let latest: Tick | undefined;
  let screen: Screen | undefined;
  try {
    for (let next = performance.now(); !ending.signal.aborted; ) {
      const tick = history.add(await queue.stats(), new Date(), performance.now());
      latest = tick;
      if (show) show(tick);
      else {
        screen ??= new Screen(process.stdout, (columns) => viewOf(args, history, latest ?? tick, columns));
        screen.redraw();
      }
      next = Math.max(next + intervalMs, performance.now());
      await sleep(Math.max(1, next - performance.now()), undefined, { signal: ending.signal }).catch(() => {});
    }
  } finally {
    screen?.end();
    process.stdout.off("error", end);
    forgetSignals();
  }
}

function lineByLine(args: Arguments): (tick: Tick) => void {
  let hasWarned = false;
  return (tick) => {
    const { at, ready, processing, acked, failed, putsPerSecond, acksPerSecond } = tick;
    const counts = Object.entries({ ready, processing, acked, failed }).map(([state, n]) => `${state} ${grouped(n)}`);
    const rates = [`puts/s ${rateText(putsPerSecond)}`, `acks/s ${rateText(acksPerSecond)}`];
    print([at.toISOString(), ...counts, ...rates].join("  "));
    const warning = hasWarned ? undefined : outgrown(tick, again(args, "purge"));
    if (warning !== undefined) tell(warning);
    hasWarned ||= warning !== undefined;
  };
}
