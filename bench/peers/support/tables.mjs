import { goals } from "./goals.mjs";
import { figure, times } from "./lines.mjs";

/** Which workloads share a table, and how their columns are called there. */
const MACHINE = {
  puts: { "put-1": "one at a time", "put-100": "100 in flight", bulk: "bulk, 1,000 a call" },
  worker: { "worker-1": "1 slot", "worker-10": "10 slots", "worker-100": "100 slots" },
  fleet: {
    "fleet-1": "1 at a time, 100 B",
    "fleet-50": "50 at a time, 100 B",
    "fleet-1-large": "1 at a time, 100 KiB",
    "fleet-50-large": "50 at a time, 100 KiB",
    backlog: "50 at a time, 100 B, 1,000,000 before",
  },
  waiting: {
    latency: "put to start: p50, p99 (ms)",
    idle: "CPU when idle (%)",
    memory: "memory for 100,000 jobs (MB)",
  },
  fairness: { "fairness-put": "8 processes put", "fairness-work": "8 processes handle" },
};
const POSTGRES = {
  puts: MACHINE.puts,
  work: { ...MACHINE.worker, "fleet-50": "4 processes put, 8 handle, 50 at a time" },
  waiting: MACHINE.waiting,
};
const GROUPS = { machine: MACHINE, postgres: POSTGRES };

const table = (head, rows) =>
  [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");

function cell(result) {
  if (result?.value === undefined) return "–";
  const { value, p99, ours, wrong } = result;
  const figures = p99 === undefined ? figure(value) : `${figure(value)}, ${figure(p99)}`;
  return [figures, ours === undefined ? "" : `(${times(ours)})`, wrong === undefined ? "" : "**not exact**"]
    .filter((part) => part !== "")
    .join(" ");
}

function group({ peers, workloads }, columns) {
  const names = Object.keys(columns).filter((name) => workloads[name] !== undefined);
  const of = (name, side) => workloads[name].sides.find((result) => result.side === side);
  const takes = (side) => names.some((name) => of(name, side)?.value !== undefined);
  const rows = Object.keys(peers)
    .filter(takes)
    .map((side) => [peers[side].title, ...names.map((name) => cell(of(name, side)))]);
  const notes = names.flatMap((name) =>
    workloads[name].sides
      .filter(({ side, note, wrong, reason }) => peers[side] && (note ?? wrong ?? reason) !== undefined)
      .map(({ side, note, wrong, reason }) => {
        const why = reason === undefined ? [] : [reason.split("\n")[0]];
        return `- ${columns[name]}, ${peers[side].title}: ${[note, ...(wrong ?? []), ...why].filter(Boolean).join("; ")}.`;
      }),
  );
  const body = table(["", ...names.map((name) => columns[name])], rows);
  return notes.length === 0 ? body : `${body}\n\n${notes.join("\n")}`;
}

function peersTable({ machine, quick, peers }) {
  const rows = Object.values(peers).map(
    ({ title, version = "–", settings, durability = "–", fsyncs = "–", reason }) => {
      const how = reason === undefined ? settings : `did not take part: ${reason.split("\n")[0]}`;
      return [title, version, how, durability, typeof fsyncs === "number" ? fsyncs.toLocaleString("en-US") : fsyncs];
    },
  );
  const head = ["peer", "version", "how it is used", "durability, read back", "flushes in 1,000 puts"];
  const warning = quick ? "**Tiny sizes, which say nothing about speed.** " : "";
  return `${warning}${machine}.\n\n${table(head, rows)}`;
}

/** The tables of a page, by the names of their places there. */
export function tablesOf(field, results) {
  const groups = Object.entries(GROUPS[field]).map(([name, columns]) => [name, group(results, columns)]);
  const reached = table(["", "wanted", "reached", ""], goals(field, results));
  return { peers: peersTable(results), goals: reached, ...Object.fromEntries(groups) };
}
