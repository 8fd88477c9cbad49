// Runs statements on PostgreSQL for a thread that waits for them: see postgres-database.ts.
import { parentPort, workerData } from "node:worker_threads";
import pg from "pg";

const INT8 = 20;
const NUMERIC = 1700;
const { port, cell } = workerData;
const clients = new Map();
// Tests compare numbers.
const types = {
  getTypeParser: (id, format) => (id === INT8 || id === NUMERIC ? Number : pg.types.getTypeParser(id, format)),
};

parentPort.on("message", async (request) => {
  let answer;
  try {
    answer = { result: await perform(request) };
  } catch ({ message, code }) {
    answer = { error: { message, code } };
  }
  port.postMessage(answer);
  Atomics.add(cell, 0, 1);
  Atomics.notify(cell, 0);
});

async function perform({ verb, connection, url, setUp, sql, values }) {
  if (verb === "open") {
    const client = new pg.Client({ connectionString: url, types });
    client.on("error", () => {}); // the next statement tells
    await client.connect();
    clients.set(connection, client);
    await client.query(setUp);
    return;
  }
  const client = clients.get(connection);
  if (verb === "close") {
    clients.delete(connection);
    return client.end();
  }
  const { rows, rowCount } = await client.query(sql, values);
  return { rows, changes: rowCount };
}
