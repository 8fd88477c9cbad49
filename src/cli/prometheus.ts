import type { QueueDiagnostics } from "../index.ts";

interface Gauge {
  readonly name: string;
  readonly help: string;
  /** The value, or one for each state. */
  readonly value: number | { readonly [state: string]: number };
}

/** The metrics of a queue, in the text format of Prometheus, version 0.0.4. Their names are documented, and stay. */
export function prometheusText(facts: QueueDiagnostics): string {
  const { queueName, ready, processing, acked, failed, activeLeases, expiredLeases, freelistCount, pageSize } = facts;
  const gauges: Gauge[] = [
    {
      name: "jobs",
      help: "Jobs by state; ready includes delayed ones, failed are the dead letters.",
      value: { ready, processing, acked, failed },
    },
    {
      name: "oldest_ready_age_seconds",
      help: "How long the next job to be delivered has been due; 0 if none is.",
      value: (facts.oldestAvailableAgeMs ?? 0) / 1000,
    },
    {
      name: "leases",
      help: "Leases of deliveries; those that expired belong to workers that are gone.",
      value: { active: activeLeases, expired: expiredLeases },
    },
    {
      name: "oldest_expired_lease_age_seconds",
      help: "How long ago the first of the expired leases ended; 0 if there is none.",
      value: (facts.oldestExpiredLeaseAgeMs ?? 0) / 1000,
    },
    { name: "database_bytes", help: "Size of the database, for all queues.", value: facts.databaseSizeBytes ?? 0 },
  ];
  // There is a file.
  if (freelistCount !== undefined && pageSize !== undefined) {
    gauges.push(
      { name: "free_bytes", help: "Space in the file that new jobs will use.", value: freelistCount * pageSize },
      { name: "wal_bytes", help: "Size of the write-ahead log, for all queues.", value: facts.walSizeBytes ?? 0 },
    );
  }
  return gauges.flatMap((gauge) => linesOf(`queue="${escaped(queueName)}"`, gauge)).join("\n");
}

function linesOf(label: string, { name, help, value }: Gauge): string[] {
  const full = `localqueue_${name}`;
  const lines =
    typeof value === "number"
      ? [`${full}{${label}} ${value}`]
      : Object.entries(value).map(([state, count]) => `${full}{${label},state="${state}"} ${count}`);
  return [`# HELP ${full} ${help}`, `# TYPE ${full} gauge`, ...lines];
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
