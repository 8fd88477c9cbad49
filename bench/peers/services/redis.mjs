import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { endAtExit } from "../support/leftovers.mjs";
import { freePort, needed } from "./debian.mjs";

const STARTED_MS = 10_000;

/** Redis as Debian ships it, which keeps snapshots; with `fsync`, with a log that is flushed before each answer. */
export async function startRedis({ fsync }) {
  const program = needed("redis-server", "redis-server");
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-peers-redis-"));
  const port = await freePort();
  const log = fsync ? ["--appendonly", "yes", "--appendfsync", "always"] : [];
  const args = ["--port", String(port), "--bind", "127.0.0.1", "--dir", directory, ...log];
  const child = spawn(program, args, { stdio: "ignore" });
  const ended = once(child, "exit");
  const forget = endAtExit(() => child.kill("SIGKILL"));
  const { Redis } = await import("ioredis");
  const redis = new Redis({ port, host: "127.0.0.1", maxRetriesPerRequest: null, retryStrategy: () => 50 });
  redis.on("error", () => {});
  const late = sleep(STARTED_MS, "late", { ref: false });
  if ((await Promise.race([redis.ping(), late, ended])) !== "PONG") throw new Error("redis-server did not start.");
  return {
    pids: () => [child.pid],
    async lend() {
      await redis.flushall();
      return { place: { port }, end: () => redis.flushall() };
    },
    async stop() {
      redis.disconnect();
      child.kill("SIGKILL");
      await ended;
      forget();
      fs.rmSync(directory, { recursive: true, force: true });
    },
  };
}
