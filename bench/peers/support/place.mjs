import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Client } from "./client.mjs";

/** Where a side keeps its jobs for one round: a new directory, or an emptied server. */
export async function withPlace(side, servers, work) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-peers-"));
  const clients = [];
  let lent;
  try {
    const server = await servers.of(side);
    lent = await server?.lend();
    const place = { directory, ...lent?.place };
    const start = async (count = 1) => {
      const started = Array.from({ length: count }, () => new Client(side, place));
      clients.push(...started);
      await Promise.all(started.map(({ opened }) => opened));
      return started;
    };
    // The first process makes the tables, which several at once may not survive.
    const [keeper] = await start();
    return await work({ keeper, start, server });
  } finally {
    await Promise.all(clients.map((client) => client.kill()));
    await lent?.end();
    fs.rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}
