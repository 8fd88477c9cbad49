// The same for PostgreSQL: see faults.mjs. Those that are to notice them run on PostgreSQL.

export const POSTGRES_FAULTS = [];
