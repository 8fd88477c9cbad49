import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { openDatabase } from "./support/database.ts";
import { Script } from "./support/script.ts";
import { open } from "./support/storage.ts";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

const PRODUCERS = 4;
const BUSY_MS = 3000;

function succeeds(work: () => void): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

test("producers that never stop let other programs write, and share the file among themselves", async () => {
  const directory = tempDirectory();
  await open(directory).stats();
  const producers = Array.from({ length: PRODUCERS }, (_, producer) => {
    const put =
      producer % 2 === 0
        ? 'storage.put([entry("x".repeat(200))], {}).then(() => { jobs++; })'
        : 'storage.put(Array(100).fill(entry("x".repeat(200))), {}).then(() => { jobs += 100; })';
    return new Script(
      directory,
      `const storage = open();
      await storage.stats();
      print("ready");
      for await (const line of lines()) break;
      process.stdin.destroy();
      const end = performance.now() + ${BUSY_MS};
      let jobs = 0;
      const produce = async () => { while (performance.now() < end) await ${put}; };
      await Promise.all(Array.from({ length: ${producer % 2 === 0 ? 500 : 20} }, produce));
      print(jobs);
      await storage.close();`,
    );
  });
  await until(() => producers.every(({ printed }) => printed.length === 1), 20_000);

  // Somebody else's program, which waits for the lock as SQLite does.
  const database = openDatabase(directory);
  database.exec("PRAGMA busy_timeout = 5000");
  database.exec("CREATE TABLE IF NOT EXISTS foreign_program (written INTEGER)");
  const insert = database.prepare("INSERT INTO foreign_program VALUES (:written)");
  for (const producer of producers) producer.tell("go");
  const waits: number[] = [];
  // And one that does not wait at all.
  const impatient = openDatabase(directory);
  impatient.exec("PRAGMA busy_timeout = 0");
  const attempts: boolean[] = [];
  const end = performance.now() + BUSY_MS;
  while (performance.now() < end) {
    const started = performance.now();
    insert.run({ written: waits.length });
    waits.push(performance.now() - started);
    for (let i = 0; i < 4; i++) {
      await sleep(5);
      attempts.push(succeeds(() => impatient.exec("INSERT INTO foreign_program VALUES (0)")));
    }
  }
  database.close();
  impatient.close();

  await Promise.all(producers.map((producer) => producer.ended()));
  const jobs = producers.map(({ printed }) => Number(printed[1]));
  expect(Math.max(...waits)).toBeLessThan(4000);
  expect(attempts).toContain(true);
  for (const parity of [0, 1]) {
    const alike = jobs.filter((_, producer) => producer % 2 === parity);
    expect(Math.min(...alike) / Math.max(...alike)).toBeGreaterThanOrEqual(0.2);
  }
  expect(await open(directory).stats()).toMatchObject({ ready: jobs.reduce((sum, n) => sum + n, 0) });
});
