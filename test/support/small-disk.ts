import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import type { Socket } from "node:net";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { tempDirectory } from "./temp.ts";

const MIB = 1024 * 1024;

export type DiskKind = "tmpfs" | "ext4";

/** Tells ext4, on a sign, that the power is gone: from now on nothing is written, not even what its journal gathered. */
const SHUTDOWN = `$| = 1; open(my $disk, "<", $ARGV[0]) or die $!; print "ready\\n"; <STDIN>;
  my $flag = pack("I", 2); ioctl($disk, 0x8004587D, $flag) or die $!`;

/** A file system of its own, unmounted at the end of the test. Put queues there before they are closed. */
export class SmallDisk {
  readonly directory: string;
  readonly #image: string;
  readonly #fillers: string[] = [];

  constructor(kind: DiskKind, mib: number, block = "4096") {
    const place = tempDirectory();
    this.directory = path.join(place, "disk");
    this.#image = path.join(place, "image");
    fs.mkdirSync(this.directory);
    unmountAfterDeath(this.directory);
    if (kind === "tmpfs") run("mount", "-t", "tmpfs", "-o", `size=${mib}m`, "tmpfs", this.directory);
    else {
      fs.writeFileSync(this.#image, "");
      fs.truncateSync(this.#image, mib * MIB);
      run("mkfs.ext4", "-q", "-m", "0", "-b", block, this.#image);
      this.#mount();
    }
    onTestFinished(() => void run("umount", "--lazy", this.directory));
  }

  #mount(): void {
    run("mount", "-o", "loop", this.#image, this.directory);
  }

  /** What the system may do at any time: what was written to that file so far comes to be on the disk, before all else. */
  flush(file: string): void {
    run("sync", "--data", file);
  }

  /** A switch that cuts the power of an ext4 within a millisecond: what is not on the disk by then is lost. */
  async powerSwitch(): Promise<() => Promise<void>> {
    const perl = spawn("nice", ["-n", "-20", "perl", "-e", SHUTDOWN, this.directory], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    await once(perl.stdout, "data");
    return async () => {
      perl.stdin.end("\n");
      const [code] = await once(perl, "close");
      if (code !== 0) throw new Error(`the power could not be cut (${code})`);
    };
  }

  /** Brings the power back. All who had files open there must be dead. */
  restorePower(): void {
    run("umount", this.directory);
    this.#mount();
  }

  get free(): number {
    const { bavail, bsize } = fs.statfsSync(this.directory);
    return bavail * bsize;
  }

  /** What another program does to the disk: takes all that is left, but for so many bytes. */
  fill(leave = 0): void {
    const filler = path.join(this.directory, `filler${this.#fillers.length}`);
    this.#fillers.push(filler);
    const file = fs.openSync(filler, "w");
    try {
      for (const size of [64 * 1024, 4096, 512]) {
        const block = Buffer.alloc(size, 1);
        while (this.free - size >= leave) fs.writeSync(file, block);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    } finally {
      fs.closeSync(file);
    }
  }

  /** From now on nothing can be written, in the middle of everything: what the kernel does when it finds a disk faulty. */
  shutDown(): void {
    const goDown = 'open(my $f, "<", $ARGV[0]) or die; my $how = pack("I", 0); ioctl($f, 0x8004587D, $how) or die $!';
    run("perl", "-e", goDown, this.directory);
  }

  /** Mounts the disk anew once nobody uses it any more, as after a repair. Only for ext4. */
  repair(): void {
    run("umount", this.directory);
    run("mount", "-o", "loop", path.join(this.directory, "..", "image"), this.directory);
  }

  /** Gives that back. */
  clear(): void {
    for (const filler of this.#fillers.splice(0)) fs.rmSync(filler);
  }
}

/** If this process is killed before the end of the test, somebody else unmounts. */
function unmountAfterDeath(directory: string): void {
  const script = 'cat; umount --lazy "$1" 2> /dev/null';
  const watcher = spawn("sh", ["-c", script, "sh", directory], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  watcher.unref();
  (watcher.stdin as Socket).unref();
}

function run(command: string, ...args: string[]): string {
  return execFileSync(command, args, { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });
}

/** Why this machine cannot mount small file systems. */
function obstacle(): string | undefined {
  if (process.geteuid?.() !== 0) return "only root can mount file systems";
  const place = fs.mkdtempSync("/tmp/localqueue-");
  try {
    run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place);
    run("umount", place);
    run("mkfs.ext4", "-V");
    return undefined;
  } catch (error) {
    return (error as Error).message;
  } finally {
    fs.rmdirSync(place);
  }
}

/** Tests that need file systems of their own. Where there can be none they are left out, and continuous integration fails. */
export function describeSmallDisks(name: string, tests: () => void): void {
  const why = obstacle();
  if (why === undefined) {
    describe(name, tests);
    return;
  }
  process.stderr.write(`NOT TESTED: ${name}: ${why}\n`);
  test(`${name}: small file systems can be mounted`, ({ skip }) => {
    expect(process.env["CI"], why).toBeUndefined();
    skip(why);
  });
}
