import { PostgresServer } from "./postgres-server.ts";

/** Starts the server of the run; what it returns removes it. */
export default async function setup(): Promise<() => Promise<void>> {
  const server = await PostgresServer.start();
  process.env["TEST_POSTGRES_URL"] = server.url();
  return () => server.remove();
}
