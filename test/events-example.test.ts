import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { tempDirectory } from "./support/temp.ts";

const STORY = [
  "producer: order A-1 goes to audit, billing, mail",
  "producer: order A-1 is known already",
  "billing, delivery 1: order A-2: the bank is busy",
  "billing, delivery 2: order A-2 is paid",
  "shipping, delivery 1: order A-1 is shipped",
  "shipping: a dead letter, rejected: we do not ship to nz",
  "replay: order A-2 failed in shipping (rejected, Reject: we do not ship to nz)",
  "replay: 1 will be delivered again",
  "shipping, delivery 1: order A-2 is shipped",
  'mail, delivery 1: "Your order A-2 is on its way"',
  "It adds up: 9 events of 3 orders, each handled by all who wanted it.",
];

test("the example with events tells its story, adds up, and leaves nothing behind", () => {
  const TMPDIR = tempDirectory();
  const { status, stdout, stderr } = spawnSync(process.execPath, ["examples/events/main.mjs"], {
    encoding: "utf8",
    env: { ...process.env, TMPDIR },
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  const lines = stdout.trim().split("\n");
  expect(lines.filter((line) => STORY.includes(line))).toHaveLength(STORY.length);
  expect(STORY.filter((line) => !lines.includes(line))).toEqual([]);
  expect(readdirSync(TMPDIR)).toEqual([]);
});
