import { SimpleQueue } from "localqueue";
import { describe, expect, onTestFinished, test } from "vitest";
import { readRow } from "./support/database.ts";
import { faultsOf, select } from "./support/inspect.ts";
import { type Host, Network, whyNoHosts } from "./support/network.ts";
import { PostgresLoad } from "./support/postgres-load.ts";
import { PostgresServer } from "./support/postgres-server.ts";
import { Program } from "./support/program.ts";
import { until } from "./support/until.ts";

interface Site {
  readonly server: PostgresServer;
  readonly one: Host;
  readonly other: Host;
  /** The server, as a host reaches it. */
  readonly from: (host: Host) => string;
}

async function newSite(): Promise<Site> {
  const network = new Network();
  onTestFinished(() => network.remove());
  const [one, other] = [network.addHost(), network.addHost()];
  const server = await PostgresServer.start({
    settings: { tcp_user_timeout: 3_000 },
    listen: "*",
    access: ["host all all 127.0.0.1/32 trust", "host all all 198.18.0.0/15 trust"],
  });
  onTestFinished(() => server.remove());
  return { server, one, other, from: ({ gateway }) => server.url().replace("127.0.0.1", gateway) };
}

// As root on Linux they are never skipped.
const reason = whyNoHosts();

describe.skipIf(reason !== undefined)(`two hosts on one server${reason ? ` (${reason})` : ""}`, () => {
  test("of which one is cut off for longer than its leases: the other does the work, and nothing is done with twice", async () => {
    const { server, one, other, from } = await newSite();
    await using queue = new SimpleQueue(server.url(), { maxRetries: 10 });
    const input = (host: Host): object => ({ location: from(host), options: { leaseMs: 1_000 } });
    const far = new Program("worker.mjs", input(one), { through: one.through });
    const { id } = await queue.put({ waitsMs: 6_000 });
    await far.hears("handling");
    one.unplug();
    const near = new Program("worker.mjs", input(other), { through: other.through });
    expect(await near.hears("handling", 30_000)).toMatchObject({ id, attempt: 2 });
    one.plug();
    expect(await near.hears("job:acked", 30_000)).toMatchObject({ id, attempt: 2 });
    await far.hears("handled", 30_000);
    await queue.put({ n: 2 });
    await far.hears("lease:lost", 60_000);
    expect(far.said("job:acked").filter((message) => message["id"] === id)).toEqual([]);
    expect(readRow(server.url(), id)).toMatchObject({ status: 2, attempts: 2 });
    await Promise.all([far.end(60_000), near.end(60_000)]);
    expect(faultsOf(server.url())).toEqual([]);
  }, 180_000);

  test("that are cut off in turn under load lose nothing, and both go on by themselves", async () => {
    const { server, one, other, from } = await newSite();
    const load = new PostgresLoad(3);
    for (const host of [one, other]) await load.add(from(host), { through: host.through });
    for (const host of [one, other, one]) {
      await load.resumes();
      host.unplug();
      const [last] = select(server.url(), "SELECT max(lease_until) AS at FROM messages WHERE status = 1");
      // Every lease that it may hold is over.
      await until(() => Date.now() > Number(last?.["at"]), 30_000);
      host.plug();
      await load.resumes();
    }
    await load.check(server.url());
  }, 240_000);
});
