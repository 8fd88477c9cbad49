import { styleText } from "node:util";
import { withoutPassword } from "./wording.ts";

/** The only place that writes to the terminal, or to whatever stands in for it. */

/** The reader of a pipe may leave early (`| head -1`), and a terminal may be closed: nobody misses the rest. */
const NOBODY_READS: readonly (string | undefined)[] = ["EPIPE", "EIO", "ERR_STREAM_DESTROYED"];

export function bearClosedPipes(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", ({ code }: NodeJS.ErrnoException) => {
      if (NOBODY_READS.includes(code)) return;
      // A report that does not fit on the disk is not done.
      process.once("exit", () => {
        process.exitCode = 1;
      });
    });
  }
}

/** Whether a report can be redrawn in place. */
export function isScreen(): boolean {
  return process.stdout.isTTY && process.env["TERM"] !== "dumb";
}

/** A part of a report, in colour where that can be seen and is wanted (NO_COLOR). */
export function paint(style: "bold" | "cyan" | "red" | "yellow", text: string): string {
  return process.stdout.isTTY && process.stdout.hasColors() ? styleText(style, text) : text;
}

/** A report, or a part of one. */
export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Bytes as they are. */
export function printRaw(bytes: Uint8Array): void {
  process.stdout.write(bytes);
}

/** A report for programs: one line of JSON. */
export function printJson(report: object): void {
  print(JSON.stringify(report));
}

/** What is no report; it may quote what was typed. The name tells it from what the commands of `work` write to the same place. */
export function tell(text: string): void {
  process.stderr.write(`localqueue: ${withoutPassword(text)}\n`);
}
