import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { type Exit, Program } from "../support/program.ts";
import { Random } from "../support/random.mjs";
import { Layer } from "./support/size.ts";
import { newStage, type Stage } from "./support/stage.ts";
import { assertValid, workOffAndCheck } from "./support/work-off.ts";

/** The calls by which SQLite reaches its files, and how each of them may fail. */
const CALLS = {
  pwrite64: ["EIO", "ENOSPC"],
  pread64: ["EIO"],
  fsync: ["EIO", "ENOSPC"],
  fdatasync: ["EIO", "ENOSPC"],
  ftruncate: ["EIO", "ENOSPC"],
  openat: ["EMFILE", "EACCES", "EIO"],
  unlink: ["EIO", "EPERM"],
  mmap: ["ENOMEM"],
  fcntl: [],
} as const;
type CallName = keyof typeof CALLS;

/**
 * `once`: one call fails. `always`: all of them do from then on. `kill`: the process is killed there. `ghost`: what is
 * flushed fails, and the process is killed a little later, so that what failed may come true when the log is recovered.
 * `slow`: each flush takes long.
 */
const MODES = { once: 4, always: 1, kill: 3, ghost: 1, slow: 0.5 };

interface Run {
  readonly program: Program;
  readonly exit: Exit;
  readonly trace: string;
}

/** Runs the program with some of its system calls tampered with; resolves to what it was seen to do. */
async function run(scene: Stage, injections: readonly string[]): Promise<Run> {
  const trace = path.join(scene.directory, "trace");
  const files = ["", "-wal", "-shm", "-journal"].flatMap((end) => ["-P", `${scene.location}/localqueue.db${end}`]);
  const inject = injections.flatMap((injection) => ["-e", `inject=${injection}`]);
  const through = ["strace", "-f", "-o", trace, "-e", `trace=${Object.keys(CALLS).join(",")}`, ...files, ...inject];
  const program = new Program("../reliability/programs/syscalls.mjs", scene, { through });
  const exit = await program.ends(120_000);
  return { program, exit, trace: readFileSync(trace, "utf8") };
}

/** How often the busiest thread makes each call if nothing fails. */
async function countCalls(): Promise<Map<CallName, number>> {
  const { trace, exit } = await run(newStage(), []);
  expect(exit).toEqual({ code: 0, signal: null, stderr: "" });
  const counts = new Map<string, number>();
  for (const [, call] of trace.matchAll(/^(\d+ +\w+)\(/gm))
    counts.set(call as string, (counts.get(call as string) ?? 0) + 1);
  const most = new Map<CallName, number>();
  for (const [call, count] of counts) {
    const name = call.split(/ +/)[1] as CallName;
    most.set(name, Math.max(most.get(name) ?? 0, count));
  }
  return most;
}

interface Fault {
  readonly mode: keyof typeof MODES;
  readonly injections: readonly string[];
}

function pickFault(random: Random, counts: ReadonlyMap<CallName, number>): Fault {
  const mode = random.weighted(MODES);
  const flush: CallName = counts.has("fsync") ? "fsync" : "fdatasync";
  if (mode === "slow") return { mode, injections: [`${flush}:delay_enter=${random.between(5, 60)}ms`] };
  // A lock that cannot be given up is kept until the file is closed, and SQLite tells nobody. Locks of a file on a local
  // disk do not fail; but a process may die at any of them.
  const calls = [...counts.keys()].filter((call) => mode === "kill" || call !== "fcntl");
  const call = mode === "ghost" ? flush : random.pick(calls);
  const count = counts.get(call) as number;
  // The last ones may be missing in another run.
  const at = random.between(1, Math.max(1, Math.floor(count * 0.8)));
  if (mode === "kill") return { mode, injections: [`${call}:signal=KILL:when=${at}`] };
  const failure = `${call}:error=${random.pick(CALLS[call])}:when=${at}${mode === "always" ? "+" : ""}`;
  if (mode !== "ghost") return { mode, injections: [failure] };
  const locks = counts.get("fcntl") as number;
  const later = Math.ceil((locks * at) / count) + random.between(0, 20);
  return { mode, injections: [failure, `fcntl:signal=KILL:when=${later}`] };
}

async function round(layer: Layer, { mode, injections }: Fault): Promise<void> {
  const scene = newStage();
  layer.planned();
  layer.count(mode);
  const { program, exit, trace } = await run(scene, injections);
  const killed = exit.signal === "SIGKILL";
  const struck = trace.split("(INJECTED)").length - 1;
  if (struck > 0 || killed || trace.includes("(DELAYED)")) layer.delivered();
  expect(exit).toEqual(killed ? { code: null, signal: "SIGKILL", stderr: "" } : { code: 0, signal: null, stderr: "" });
  expect(program.said("unhandled")).toEqual([]);
  // What passes is waited out, and what does not pass is not tried without end. Each thread has its own count of calls:
  // a call without which no engine can open the file fails in one after the other.
  if (struck <= 1) expect(program.said("ill")).toEqual([]);
  expect(struck).toBeLessThan(1_000);
  const { history: _, ...findings } = await workOffAndCheck({ ...scene, queues: ["orders", "mails"] });
  assertValid(findings);
  rmSync(scene.directory, { recursive: true });
}

test("whichever system call fails, or is the last, nothing is lost that was confirmed, and nothing refused comes true", async () => {
  const layer = new Layer({ name: "syscalls", rounds: 60 });
  const counts = await countCalls();
  const seeds = layer.seeds();
  const oneAfterAnother = async (): Promise<void> => {
    for (const seed of seeds) {
      const fault = pickFault(new Random(seed), counts);
      await layer.round(seed, async () => {
        await round(layer, fault).catch((error: unknown) => {
          const said = `${fault.mode} ${fault.injections.join(" ")}`;
          throw new Error(`${said}: ${error instanceof Error ? error.message : error}`, { cause: error });
        });
      });
    }
  };
  await Promise.all([oneAfterAnother(), oneAfterAnother()]);
  layer.done();
});
