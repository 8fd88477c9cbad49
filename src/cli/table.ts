import { paint, print } from "./output.ts";
import { shortened } from "./wording.ts";

const COLUMNS = 80;

/** Prints rows in columns below a head, no wider than the terminal. Columns of numbers are aligned to the right. */
export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const layout = head.map((title, i) => {
    const cells = rows.map((row) => row[i] ?? "");
    const width = Math.max(title.length, ...cells.map((cell) => cell.length));
    return { width, isNumeric: cells.every((cell) => /^[\d,]+$/.test(cell)) };
  });
  const lines = [head, ...rows].map((row) => {
    const cells = layout.map(({ width, isNumeric }, i) =>
      isNumeric ? row[i]?.padStart(width) : row[i]?.padEnd(width),
    );
    return shortened(cells.join("  ").trimEnd(), process.stdout.columns || COLUMNS);
  });
  const [first = "", ...body] = lines;
  print([paint("bold", first), ...body].join("\n"));
}
