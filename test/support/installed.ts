import { type SpawnSyncOptions, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { isSafeSqlite } from "../../dist/storage/sqlite/driver.js";

/** What `npm pack` says about the package. */
export interface Packed {
  readonly filename: string;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

/** How a program ended. */
export interface Ran {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

const root = path.resolve(import.meta.dirname, "../..");

/** A project of a user's, outside of the repository, in which the packed package is the only one that npm installed. */
export class InstalledPackage {
  readonly directory: string = mkdtempSync(path.join(tmpdir(), "localqueue-installed-"));
  readonly packed: Packed;

  constructor() {
    const [packed] = JSON.parse(
      this.#npm(root, "pack", "--json", "--ignore-scripts", "--pack-destination", this.directory),
    );
    this.packed = packed;
    writeFileSync(path.join(this.directory, "package.json"), `{ "private": true }`);
    this.#npm(this.directory, "install", `./${packed.filename}`, "--offline", "--ignore-scripts", "--no-audit");
    // Where Node has no SQLite that can be used, the README says to install this as well.
    if (!isSafeSqlite(process.versions["sqlite"] ?? "0.0.0")) {
      const peer = "node_modules/better-sqlite3";
      symlinkSync(path.join(root, peer), path.join(this.directory, peer));
    }
  }

  /** Writes a file of the project; returns its path. */
  write(name: string, text: string): string {
    const file = path.join(this.directory, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    return file;
  }

  /** Runs a program in the project. */
  run(command: string, args: readonly string[]): Ran {
    return start(command, args, { cwd: this.directory, timeout: 30_000 });
  }

  /** Writes a program into the project and runs it. */
  runFile(name: string, text: string): Ran {
    return this.run(process.execPath, [this.write(name, text)]);
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** With an empty cache, and without the settings of the npm that may have started the tests. */
  #npm(cwd: string, ...args: string[]): string {
    const own = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
    const env = { ...Object.fromEntries(own), npm_config_cache: path.join(this.directory, ".npm") };
    const { code, output, errors } = start("npm", args, { cwd, env, timeout: 60_000 });
    if (code !== 0) throw new Error(`npm ${args[0]} ended with ${code}: ${errors}`);
    return output;
  }
}

function start(command: string, args: readonly string[], options: SpawnSyncOptions): Ran {
  const { error, status, stdout, stderr } = spawnSync(command, args, { ...options, encoding: "utf8" });
  if (error !== undefined) throw error;
  return { code: status, output: stdout.toString(), errors: stderr.toString() };
}
