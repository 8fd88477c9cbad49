export { type PostgresOptions, postgres } from "./postgres-options.ts";
export type { Location } from "./storage/location.ts";
export type { PostgresPool } from "./storage/postgres-target.ts";
