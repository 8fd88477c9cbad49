import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const START_MS = 60_000;
/** How the server is asked to end: it finishes what runs, ends what runs, or falls down as in a crash. */
const SIGNALS = { smart: "SIGTERM", fast: "SIGINT", immediate: "SIGQUIT" } as const;

export interface PostgresServerOptions {
  /** Settings of postgresql.conf. */
  readonly settings?: Readonly<Record<string, string | number>>;
  /** Addresses to listen on; default 127.0.0.1. */
  readonly listen?: string;
  /** The lines of pg_hba.conf; default: everybody on this machine may do everything. */
  readonly access?: readonly string[];
  /** Files for the data directory, such as a key, by their names. */
  readonly files?: Readonly<Record<string, string>>;
  /** The command, and its arguments, that runs it; default: none does. */
  readonly through?: readonly string[];
}

/**
 * A PostgreSQL server of the tests' own: its data in a temporary directory, on a port of its own. Nothing is flushed,
 * unless `settings` say so: the machine is not going to fail. The server refuses to run as root; for root it runs as
 * `postgres`, or else as `nobody`.
 */
export class PostgresServer {
  readonly port: number;
  readonly directory: string;
  readonly #options: PostgresServerOptions;
  #child: ChildProcess | undefined;
  #log = "";

  private constructor(port: number, directory: string, options: PostgresServerOptions) {
    this.port = port;
    this.directory = directory;
    this.#options = options;
    process.once("exit", this.#end);
  }

  static async start(options: PostgresServerOptions = {}): Promise<PostgresServer> {
    const directory = fs.mkdtempSync(path.join(os.tmpdir(), "localqueue-postgres-"));
    const server = new PostgresServer(await freePort(), directory, options);
    server.#create();
    await server.start();
    return server;
  }

  /** A location for a queue; `more` is added to the query. */
  url(database = "postgres", more: Readonly<Record<string, string>> = {}): string {
    const query = new URLSearchParams(more).toString();
    return `postgres://postgres@127.0.0.1:${this.port}/${database}${query === "" ? "" : `?${query}`}`;
  }

  /** Where its data is. */
  get data(): string {
    return path.join(this.directory, "data");
  }

  /** What it has logged since it was last started. */
  get log(): string {
    return this.#log;
  }

  /** Starts it (again), with more settings if need be; resolves when it takes connections. */
  async start(settings: Readonly<Record<string, string | number>> = {}): Promise<void> {
    const all: Record<string, string | number> = {
      port: this.port,
      listen_addresses: this.#options.listen ?? "127.0.0.1",
      unix_socket_directories: this.directory,
      max_connections: 300,
      shared_buffers: "64MB",
      fsync: "off",
      full_page_writes: "off",
      ...this.#options.settings,
      ...settings,
    };
    const flags = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const [command = "", ...args] = [...(this.#options.through ?? []), program("postgres"), "-D", this.data, ...flags];
    this.#log = "";
    const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"], ...ownUser() });
    this.#child = child;
    const gone = once(child, "exit").then(([code, signal]) => {
      throw new Error(`PostgreSQL ended (${code ?? signal}) before it was ready:\n${this.#log}`);
    });
    gone.catch(() => {}); // it ends one day
    await Promise.race([this.#ready(child), gone]);
  }

  async stop(mode: keyof typeof SIGNALS = "fast"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(SIGNALS[mode]);
    await ended;
  }

  /** Stops the process where it stands, or lets it go on: it neither answers nor refuses. */
  signal(signal: "SIGSTOP" | "SIGCONT" | "SIGHUP"): void {
    this.#child?.kill(signal);
  }

  /** Stops it and removes its data. */
  async remove(): Promise<void> {
    await this.stop("immediate");
    process.off("exit", this.#end);
    fs.rmSync(this.directory, { recursive: true, force: true });
  }

  readonly #end = (): void => {
    this.#child?.kill("SIGQUIT");
  };

  #create(): void {
    const user = ownUser();
    if (user.uid !== undefined) fs.chownSync(this.directory, user.uid, user.gid ?? user.uid);
    const args = ["-D", this.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
    const { status, error, stderr } = spawnSync(program("initdb"), args, { encoding: "utf8", ...user });
    if (status !== 0) throw new Error(`initdb failed: ${error?.message ?? stderr}`);
    const { access, files = {} } = this.#options;
    if (access !== undefined) fs.writeFileSync(path.join(this.data, "pg_hba.conf"), `${access.join("\n")}\n`);
    for (const [name, text] of Object.entries(files)) {
      const file = path.join(this.data, name);
      fs.writeFileSync(file, text, { mode: 0o600 });
      if (user.uid !== undefined) fs.chownSync(file, user.uid, user.gid ?? user.uid);
    }
  }

  #ready(child: ChildProcess): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`PostgreSQL is not ready:\n${this.#log}`)), START_MS);
      child.stderr?.setEncoding("utf8").on("data", (text: string) => {
        this.#log += text;
        if (!this.#log.includes("database system is ready to accept")) return;
        clearTimeout(timer);
        resolve();
      });
    });
  }
}

/** The path of a program of PostgreSQL; Debian keeps those of the server off the PATH. */
function program(name: string): string {
  const chosen = process.env["POSTGRES_BIN"];
  if (chosen !== undefined) return path.join(chosen, name);
  const onPath = (process.env["PATH"] ?? "").split(path.delimiter);
  const found = [...debianFolders(), ...onPath]
    .map((folder) => path.join(folder, name))
    .find((file) => fs.existsSync(file));
  if (found === undefined) {
    throw new Error(`There is no ${name} here: install PostgreSQL (Debian, Ubuntu: apt-get install postgresql)`);
  }
  return found;
}

/** A port of this machine that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Whether something takes connections at a port of this machine. */
export async function listens(port: number): Promise<boolean> {
  const socket = net.connect(port, "127.0.0.1");
  const answers = await Promise.race([
    once(socket, "connect").then(
      () => true,
      () => false,
    ),
    sleep(1000, false),
  ]);
  socket.destroy();
  return answers;
}

/** As whom a program runs that refuses to run as root. */
export function ownUser(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const lines = fs
    .readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"));
  const [, , uid, gid] = lines.find(([name]) => name === "postgres") ?? lines.find(([name]) => name === "nobody") ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

/** Newest first. */
function debianFolders(): string[] {
  const home = "/usr/lib/postgresql";
  if (!fs.existsSync(home)) return [];
  const versions = fs.readdirSync(home).filter((name) => /^\d+$/.test(name));
  return versions.sort((one, other) => Number(other) - Number(one)).map((version) => path.join(home, version, "bin"));
}
