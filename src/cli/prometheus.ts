import type { QueueStats } from "../index.ts";

/** One metric with its samples; `null` = there is nothing to be measured. */
interface Gauge {
  readonly name: string;
  readonly help: string;
  readonly samples: readonly (readonly [labels: { readonly [name: string]: string }, value: number | null])[];
}

/** The metrics of a queue, in the text format of Prometheus, version 0.0.4. Their names are documented, and stay. */
export function prometheusText(queue: string, counts: QueueStats): string {
  const gauges: readonly Gauge[] = [
    {
      name: "localqueue_jobs",
      help: "Jobs by state; ready includes delayed ones, failed are the dead letters.",
      samples: Object.entries(counts).map(([state, count]) => [{ queue, state }, count]),
    },
  ];
  return gauges.flatMap(linesOf).join("\n");
}

function linesOf({ name, help, samples }: Gauge): string[] {
  const lines = samples.flatMap(([labels, value]) => {
    const list = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    return value === null ? [] : [`${name}{${list.join(",")}} ${value}`];
  });
  return lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} gauge`, ...lines];
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
