import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { withPlace } from "./place.mjs";

const PUTS = 1_000;
const WARM_UP = 20;
/** Some peers write a little later than they say. */
const LATE_MS = 300;

const hasStrace = spawnSync("strace", ["-V"]).status === 0;

/** What a side says of its durability, and how often it flushes to the disk in 1,000 puts, one after the other. */
export function durabilityOf(side, servers) {
  return withPlace(side, servers, async ({ keeper, server }) => {
    const { durability } = await keeper.ask("durability");
    if (!hasStrace) return { durability };
    await keeper.ask("put", { first: 0, count: WARM_UP, lanes: 1 });
    const output = path.join(fs.mkdtempSync(path.join(keeper.directory, "strace-")), "summary");
    const pids = [keeper.pid, ...(server?.pids() ?? [])];
    const trace = ["-f", "-c", "-e", "trace=fsync,fdatasync", "-o", output, ...pids.flatMap((pid) => ["-p", pid])];
    const strace = spawn("strace", trace.map(String), { stdio: ["ignore", "ignore", "pipe"] });
    const ended = once(strace, "close");
    await once(strace.stderr, "data");
    await keeper.ask("put", { first: WARM_UP, count: PUTS, lanes: 1 });
    await sleep(LATE_MS);
    strace.kill("SIGINT");
    await ended;
    await keeper.close();
    return { durability, fsyncs: callsIn(fs.readFileSync(output, "utf8")) };
  });
}

/** Adds up the calls in the lines of `strace -c`: share, seconds, microseconds a call, calls, errors, name. */
function callsIn(summary) {
  const rows = summary.split("\n").map((line) => line.trim().split(/\s+/));
  return rows.filter((row) => /^(fsync|fdatasync)$/.test(row.at(-1))).reduce((sum, row) => sum + Number(row[3]), 0);
}
