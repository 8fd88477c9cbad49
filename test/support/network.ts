import { spawnSync } from "node:child_process";
import process from "node:process";

/** Why this machine cannot have hosts of its own; `undefined` = it can. */
export function whyNoHosts(): string | undefined {
  if (process.platform !== "linux") return "only Linux has network namespaces";
  if (process.getuid?.() !== 0) return "only root may make network namespaces";
  return undefined;
}

/**
 * Hosts of a network that is this machine's own: namespaces, each joined to it by a cable that can be pulled out. The
 * addresses are of a block that is reserved for tests (RFC 2544).
 */
export class Network {
  readonly #id = process.pid % 250;
  readonly #hosts: Host[] = [];

  addHost(): Host {
    const host = new Host(`lq${process.pid}-${this.#hosts.length}`, `198.18.${this.#id}.${this.#hosts.length * 4}`);
    this.#hosts.push(host);
    return host;
  }

  remove(): void {
    for (const host of this.#hosts) host.remove();
  }
}

export class Host {
  /** This machine, as the host knows it. */
  readonly gateway: string;
  readonly #name: string;
  readonly #cable: string;

  constructor(name: string, block: string) {
    const [one, two, three, last = 0] = block.split(".").map(Number);
    const address = (n: number): string => `${one}.${two}.${three}.${last + n}`;
    this.gateway = address(1);
    this.#name = name;
    this.#cable = `${name}v`;
    ip("netns", "add", name);
    ip("link", "add", this.#cable, "type", "veth", "peer", "name", "eth0", "netns", name);
    ip("addr", "add", `${this.gateway}/30`, "dev", this.#cable);
    ip("link", "set", this.#cable, "up");
    for (const args of [
      ["addr", "add", `${address(2)}/30`, "dev", "eth0"],
      ["link", "set", "eth0", "up"],
    ]) {
      ip("-n", name, ...args);
    }
    ip("-n", name, "link", "set", "lo", "up");
  }

  /** What runs a command on it. */
  get through(): string[] {
    return ["ip", "netns", "exec", this.#name];
  }

  /** Nothing reaches it, and nobody is told. */
  unplug(): void {
    ip("link", "set", this.#cable, "down");
  }

  plug(): void {
    ip("link", "set", this.#cable, "up");
  }

  remove(): void {
    spawnSync("ip", ["netns", "del", this.#name]);
    spawnSync("ip", ["link", "del", this.#cable]);
  }
}

function ip(...args: readonly string[]): void {
  const { status, error, stderr } = spawnSync("ip", args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`ip ${args.join(" ")}: ${error?.message ?? stderr}`);
}
