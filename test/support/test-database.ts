import type { Row } from "../../dist/storage/sqlite/driver.js";

/** A connection beside the queue's own, on which a statement ends before the call returns. */
export interface TestDatabase {
  exec(sql: string): void;
  /** Parameters are written `:name`. */
  prepare(sql: string): {
    all(parameters?: Parameters): Row[];
    get(parameters?: Parameters): Row | undefined;
    run(parameters?: Parameters): { readonly changes: number };
  };
  close(): void;
}

type Parameters = { readonly [name: string]: Row[string] };
