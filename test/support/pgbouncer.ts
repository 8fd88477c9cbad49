import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { freePort, listens, ownUser, type PostgresServer } from "./postgres-server.ts";
import { until } from "./until.ts";

/** A pooler in front of a server that hands out a connection for one transaction at a time. */
export class PgBouncer {
  readonly port: number;
  readonly #directory: string;
  readonly #child: ChildProcess;

  private constructor(port: number, directory: string, child: ChildProcess) {
    this.port = port;
    this.#directory = directory;
    this.#child = child;
  }

  static async start(server: PostgresServer): Promise<PgBouncer> {
    const directory = mkdtempSync(path.join(tmpdir(), "localqueue-pgbouncer-"));
    const port = await freePort();
    const file = path.join(directory, "pgbouncer.ini");
    writeFileSync(
      file,
      `[databases]
* = host=127.0.0.1 port=${server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
auth_file = ${path.join(directory, "users")}
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`,
    );
    writeFileSync(path.join(directory, "users"), '"postgres" ""\n');
    const user = ownUser();
    if (user.uid !== undefined) chownSync(directory, user.uid, user.gid ?? user.uid);
    const env = { ...process.env, PATH: `${process.env["PATH"]}${path.delimiter}/usr/sbin` };
    const child = spawn("pgbouncer", [file], { env, stdio: ["ignore", "ignore", "pipe"], ...user });
    let log = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      log += text;
    });
    const bouncer = new PgBouncer(port, directory, child);
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`pgbouncer ended (${child.exitCode}): ${log}`);
      return await listens(port);
    });
    return bouncer;
  }

  async remove(): Promise<void> {
    const ended = once(this.#child, "exit");
    if (this.#child.exitCode === null && this.#child.kill("SIGKILL")) await ended;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
