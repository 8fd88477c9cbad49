import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { tempDirectory } from "./temp.ts";

const MIB = 1024 * 1024;

export type DiskKind = "tmpfs" | "ext4";

/** A file system of its own, unmounted at the end of the test. Put queues there before they are closed. */
export class SmallDisk {
  readonly directory: string;
  readonly #fillers: string[] = [];

  constructor(kind: DiskKind, mib: number, block = "4096") {
    const place = tempDirectory();
    this.directory = path.join(place, "disk");
    fs.mkdirSync(this.directory);
    if (kind === "tmpfs") run("mount", "-t", "tmpfs", "-o", `size=${mib}m`, "tmpfs", this.directory);
    else {
      const image = path.join(place, "image");
      fs.writeFileSync(image, "");
      fs.truncateSync(image, mib * MIB);
      run("mkfs.ext4", "-q", "-m", "0", "-b", block, image);
      run("mount", "-o", "loop", image, this.directory);
    }
    onTestFinished(() => void run("umount", "--lazy", this.directory));
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
