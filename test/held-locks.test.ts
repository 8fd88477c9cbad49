import fs from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { Connection } from "../dist/storage/sqlite/connection.js";
import { loadDriver } from "../dist/storage/sqlite/driver.js";
import { tempDirectory } from "./support/temp.ts";
import { until } from "./support/until.ts";

/** A connection to a new file that has written once, and how often it has heard that its locks were gone. */
function open(): { connection: Connection; alarms: () => number; write: () => void; readSharedMemory: () => void } {
  let alarms = 0;
  const locksLost = (): void => void alarms++;
  const connection = new Connection({ directory: tempDirectory(), driver: loadDriver(), locksLost });
  onTestFinished(() => connection.close());
  const write = (): void => {
    expect(connection.begin(false, 1000)).toBe(true);
    connection.commit();
  };
  write();
  const readSharedMemory = (): void => void fs.readFileSync(`${connection.file}-shm`);
  return { connection, alarms: () => alarms, write, readSharedMemory };
}

test.runIf(process.platform === "linux")(
  "each time that a program takes the locks away, this is noticed soon",
  async () => {
    const { alarms, write, readSharedMemory } = open();
    for (let times = 1; times <= 3; times++) {
      readSharedMemory();
      // Well before the second for which nobody looks where they do not come back.
      await until(() => {
        write();
        return alarms() === times;
      }, 800);
    }
  },
);

test("a connection that was closed because something failed tells of no locks", async () => {
  const { connection, alarms, write } = open();
  connection.close();
  const start = performance.now();
  await until(() => performance.now() - start > 30);
  connection.checkFiles();
  write();
  connection.checkFiles();
  expect(alarms()).toBe(0);
});
