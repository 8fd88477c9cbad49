import { writeFileSync } from "node:fs";
import type { Reporter, SerializedError, TestModule } from "vitest/node";

/**
 * Ends the run with one line: `N passed, N failed`, and `, N skipped` when there are any.
 *
 * A file that does not load, a hook that throws and an error outside any test count as one failure each, so the line
 * says `0 failed` only when the run succeeds. With `CLOSING_LINE_FILE` set, the line is also written to that file.
 */
export default class ClosingLine implements Reporter {
  #line = "";

  onInit(): void {
    // The last chance to write: other reporters and Vitest itself still print after `onTestRunEnd`.
    process.once("exit", () => {
      if (this.#line !== "") process.stdout.write(`${this.#line}\n`);
    });
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0, pending: 0 };
    for (const module of modules) {
      if (module.errors().length > 0) count.failed += 1;
      for (const suite of module.children.allSuites()) {
        if (suite.errors().length > 0) count.failed += 1;
      }
      for (const test of module.children.allTests()) count[test.result().state] += 1;
    }
    // A test that never got a result has not passed: the run was interrupted.
    const failed = count.failed + count.pending;
    this.#line = `${count.passed} passed, ${failed} failed${count.skipped > 0 ? `, ${count.skipped} skipped` : ""}`;

    const file = process.env["CLOSING_LINE_FILE"];
    if (file) writeFileSync(file, `${this.#line}\n`);
  }
}
