import { backlogWorkload } from "./backlog.mjs";
import { fairnessWorkloads } from "./fairness.mjs";
import { fleetWorkloads } from "./fleet.mjs";
import { idleWorkload } from "./idle.mjs";
import { latencyWorkload } from "./latency.mjs";
import { memoryWorkload } from "./memory.mjs";
import { putWorkloads } from "./puts.mjs";
import { workerWorkloads } from "./worker.mjs";

export const workloads = [
  ...putWorkloads,
  ...workerWorkloads,
  ...fleetWorkloads,
  backlogWorkload,
  latencyWorkload,
  idleWorkload,
  memoryWorkload,
  ...fairnessWorkloads,
];
