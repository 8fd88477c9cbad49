import { anyText, type Check, type OptionsReader, optional, optionsReader, wrongType } from "./options.ts";
import { type Location, locationOf } from "./storage/location.ts";
import { checkSchema, type PostgresPool, STANDARD_SCHEMA, targetOf } from "./storage/postgres-target.ts";

/** Which database of PostgreSQL. With neither of the first two, the environment says it: `PGHOST`, `PGUSER`, … */
export interface PostgresOptions {
  /** A URL like `postgres://user:password@host:5432/database`. */
  readonly connectionString?: string | undefined;
  /** A `Pool` of the package `pg`, which is shared with the rest of the program; closing it stays yours. */
  readonly pool?: PostgresPool | undefined;
  /** Where the tables are; created when it is first used. Default "localqueue", or the parameter `schema` of the URL. */
  readonly schema?: string | undefined;
}

const pool: Check<PostgresPool> = (value, name) => {
  const { connect, options } = (value ?? {}) as Partial<PostgresPool>;
  if (typeof connect === "function" && typeof options === "object") return value as PostgresPool;
  throw wrongType(name, "a Pool of the package pg", value);
};

const readOptions: OptionsReader<{ [K in keyof Required<PostgresOptions>]: PostgresOptions[K] }> = optionsReader({
  connectionString: optional(anyText),
  pool: optional(pool),
  schema: optional(checkSchema),
});

/**
 * A database of PostgreSQL as the location of queues and event buses. Does no I/O. Queues in the same schema of one
 * database share their connections.
 */
export function postgres(options?: PostgresOptions): Location {
  const { connectionString, pool, schema } = readOptions(options);
  if (pool === undefined) return locationOf(targetOf(connectionString ?? "postgres://", schema, "connectionString"));
  if (connectionString === undefined) return locationOf({ pool, schema: schema ?? STANDARD_SCHEMA });
  throw new TypeError("Expected `connectionString` or `pool`, got both: a pool knows its database");
}
