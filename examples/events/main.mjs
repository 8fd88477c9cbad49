// Runs the shop, each part in a process of its own, and checks that it adds up: node examples/events/main.mjs
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openBus } from "./shared.mjs";

const DEADLINE_MS = 20_000;

const location = mkdtempSync(path.join(tmpdir(), "localqueue-events-"));
const bus = openBus(location);
const workers = [];

function start(program, args, env = {}) {
  const file = fileURLToPath(new URL(program, import.meta.url));
  return spawn(process.execPath, [file, location, ...args], { stdio: "inherit", env: { ...process.env, ...env } });
}

async function end(child) {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  assert.deepEqual([child.exitCode, child.signalCode], [0, null], "a program failed");
}

async function stopWorkers() {
  const stopping = workers.splice(0);
  for (const worker of stopping) worker.kill("SIGTERM");
  await Promise.all(stopping.map(end));
}

async function counts(name) {
  const { ready, processing, acked, failed } = await bus.subscription(name).stats();
  return { waiting: ready + processing, acked, failed };
}

/** Waits until nothing is left to do, and each subscription has done so much. */
async function until(expected) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = {};
    for (const name of Object.keys(expected)) found[name] = await counts(name);
    const wanted = Object.fromEntries(Object.entries(expected).map(([name, it]) => [name, { waiting: 0, ...it }]));
    try {
      return assert.deepEqual(found, wanted);
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    await sleep(20);
  }
}

/** Each order was placed, paid and shipped, once, and each of these led to the next. */
function checkAudit() {
  const lines = readFileSync(path.join(location, "audit.jsonl"), "utf8").trim().split("\n");
  const events = lines.map((line) => JSON.parse(line));
  for (const order of ["A-1", "A-2", "A-3"]) {
    const chain = ["order.placed", "order.paid", "order.shipped"].flatMap((type) =>
      events.filter((event) => event.order === order && event.type === type),
    );
    assert.equal(chain.length, 3, `the events of order ${order}`);
    for (const [index, event] of chain.entries()) {
      assert.equal(event.correlationId, chain[0].id);
      assert.equal(event.causationId, chain[index - 1]?.id);
    }
  }
  assert.equal(events.length, 9);
  return events.length;
}

try {
  await end(start("producer.mjs", []));
  workers.push(start("worker.mjs", ["billing"]), start("worker.mjs", ["shipping", "mail", "audit"]));
  await until({
    billing: { acked: 3, failed: 0 },
    shipping: { acked: 2, failed: 1 },
    mail: { acked: 5, failed: 0 },
    audit: { acked: 8, failed: 0 },
  });
  await stopWorkers();

  await end(start("replay.mjs", ["shipping", "country"]));
  workers.push(start("worker.mjs", ["shipping", "mail", "audit"], { SHIPS_TO: "de,fr,nz" }));
  await until({
    billing: { acked: 3, failed: 0 },
    shipping: { acked: 3, failed: 0 },
    mail: { acked: 6, failed: 0 },
    audit: { acked: 9, failed: 0 },
  });
  await stopWorkers();
  console.log(`It adds up: ${checkAudit()} events of 3 orders, each handled by all who wanted it.`);
} finally {
  for (const worker of workers) worker.kill("SIGKILL");
  await bus.close();
  rmSync(location, { recursive: true, force: true, maxRetries: 10 });
}
