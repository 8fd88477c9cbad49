import { once } from "node:events";
import net from "node:net";

/** What becomes of the connection once the moment is there. */
export type Cut =
  /** What was just said is not passed on. */
  | "before"
  /** It is passed on, and the answer is not. */
  | "after"
  /** It is passed on, and only the client's side ends: the server goes on waiting for it. */
  | "unnoticed";

interface Trap {
  readonly text: string;
  readonly cut: Cut;
  readonly sprung: () => void;
}

interface Pair {
  readonly client: net.Socket;
  readonly server: net.Socket;
  /** Its answers are lost; it is cut with the next of them. */
  deaf: boolean;
}

/** A way to a PostgreSQL server that can be cut, at any moment or at a chosen one. */
export class CuttingProxy {
  readonly #server = net.createServer();
  readonly #pairs = new Set<Pair>();
  readonly #traps: Trap[] = [];
  readonly #target: number;
  #isOpen = true;
  #isSilent = false;
  #bytesPerMs = Number.POSITIVE_INFINITY;
  readonly #abandoned: net.Socket[] = [];

  private constructor(target: number) {
    this.#target = target;
    this.#server.on("connection", (client) => this.#connect(client));
  }

  static async to(port: number): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(port);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as net.AddressInfo).port;
  }

  get connections(): number {
    return this.#pairs.size;
  }

  /** Cuts the connection on which a client next says `text`, which is part of a statement. Resolves when it is cut. */
  cutAt(text: string, cut: Cut): Promise<void> {
    return new Promise((sprung) => this.#traps.push({ text, cut, sprung }));
  }

  /** Cuts all connections; until `heal()` there are no new ones. */
  cut(): void {
    this.#isOpen = false;
    for (const pair of this.#pairs) this.#end(pair);
  }

  /** From now on, nothing passes in either direction, and nobody is told. */
  silence(): void {
    this.#isSilent = true;
    for (const { client, server } of this.#pairs) for (const socket of [client, server]) socket.pause();
  }

  /** From now on, what clients say passes no faster than this. */
  slow(bytesPerMs: number): void {
    this.#bytesPerMs = bytesPerMs;
  }

  heal(): void {
    this.#isOpen = true;
    this.#isSilent = false;
    for (const { client, server } of this.#pairs) for (const socket of [client, server]) socket.resume();
  }

  async close(): Promise<void> {
    this.cut();
    for (const socket of this.#abandoned) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }

  #connect(client: net.Socket): void {
    if (!this.#isOpen) {
      client.destroy();
      return;
    }
    const pair: Pair = { client, server: net.connect(this.#target, "127.0.0.1"), deaf: false };
    this.#pairs.add(pair);
    client.on("data", (data) => {
      this.#said(pair, data);
      if (this.#bytesPerMs < data.length) this.#rest(client, data.length / this.#bytesPerMs);
    });
    pair.server.on("data", (data) => {
      if (pair.deaf) this.#end(pair);
      else client.write(data);
    });
    for (const socket of [client, pair.server]) {
      socket.on("error", () => {}); // it closes as well
      socket.on("close", () => this.#end(pair));
      if (this.#isSilent) socket.pause();
    }
  }

  #rest(socket: net.Socket, ms: number): void {
    socket.pause();
    setTimeout(() => this.#isSilent || socket.resume(), ms);
  }

  #said(pair: Pair, data: Buffer): void {
    const index = pair.deaf ? -1 : this.#traps.findIndex(({ text }) => data.includes(text));
    const [trap] = index < 0 ? [] : this.#traps.splice(index, 1);
    if (trap?.cut === "before") this.#end(pair);
    else pair.server.write(data);
    if (trap?.cut === "after") pair.deaf = true;
    if (trap?.cut === "unnoticed") this.#abandon(pair);
    trap?.sprung();
  }

  #abandon(pair: Pair): void {
    this.#pairs.delete(pair);
    this.#abandoned.push(pair.server);
    pair.client.destroy();
  }

  #end(pair: Pair): void {
    if (this.#abandoned.includes(pair.server)) return;
    this.#pairs.delete(pair);
    pair.client.destroy();
    pair.server.destroy();
  }
}
