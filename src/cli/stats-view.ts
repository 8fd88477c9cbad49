import type { Arguments } from "./arguments.ts";
import { outgrown } from "./outgrown.ts";
import { paint } from "./output.ts";
import { again, queueTitle } from "./queue-access.ts";
import { graph, type StatsHistory, type Tick } from "./stats-history.ts";
import { grouped } from "./wording.ts";

const LABEL_WIDTH = 10;
/** At least: the graphs should stay where they are. */
const NUMBER_WIDTH = 5;
const LONGEST_GRAPH = 60;

/** The lines of `stats --watch` on a terminal: counts and rates, each with what it was. */
export function viewOf(args: Arguments, history: StatsHistory, latest: Tick, columns: number): string[] {
  const { at, ready, processing, acked, failed, putsPerSecond, acksPerSecond } = latest;
  const shown: readonly (readonly [label: string, text: string, of: (tick: Tick) => number | null])[] = [
    ["ready", grouped(ready), (tick) => tick.ready],
    ["processing", grouped(processing), (tick) => tick.processing],
    ["acked", grouped(acked), (tick) => tick.acked],
    ["failed", grouped(failed), (tick) => tick.failed],
    ["puts/s", rateText(putsPerSecond), (tick) => tick.putsPerSecond],
    ["acks/s", rateText(acksPerSecond), (tick) => tick.acksPerSecond],
  ];
  const width = Math.max(NUMBER_WIDTH, ...shown.map(([, text]) => text.length));
  const graphWidth = Math.min(LONGEST_GRAPH, columns - LABEL_WIDTH - width - 4);
  const rows = shown.map(([label, text, of]) => {
    const values = history.values(of, graphWidth);
    const number = text.padStart(width);
    const count = label === "failed" && failed > 0 ? paint("red", number) : number;
    return `${label.padEnd(LABEL_WIDTH)}  ${count}  ${paint("cyan", graph(values))}`;
  });
  const warning = outgrown(latest, again(args, "purge"));
  return [
    paint("bold", queueTitle(args)),
    `${at.toISOString()}, Ctrl-C ends`,
    "",
    ...rows,
    ...(warning === undefined ? [] : ["", paint("yellow", warning)]),
  ];
}

/** 12,345 or 0.3; "-" while there is none. */
export function rateText(perSecond: number | null): string {
  if (perSecond === null) return "-";
  return perSecond < 10 ? perSecond.toFixed(1) : grouped(Math.round(perSecond));
}
