import { writeSync } from "node:fs";
import { createInterface } from "node:readline";

/** What the test gave. */
export const input = JSON.parse(process.argv[2] ?? "{}");

/** Says something to the test; it has arrived when this returns, whatever becomes of this process. */
export function say(what, details = {}) {
  const bytes = Buffer.from(`${JSON.stringify({ ...details, say: what })}\n`);
  for (let sent = 0; sent < bytes.length; ) {
    try {
      sent += writeSync(1, bytes, sent);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

/** What the test tells; ends when the test closes the input. */
export async function* told() {
  for await (const line of createInterface({ input: process.stdin })) yield JSON.parse(line);
}
