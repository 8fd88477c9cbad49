import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

/** A line that a program wrote: what it says, and more about it. */
export interface Message {
  readonly say: string;
  readonly [key: string]: unknown;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stderr: string;
}

export interface ProgramOptions {
  /** Default: this Node. */
  readonly interpreter?: string;
  /** The command, and its arguments, that runs it; default: none does. */
  readonly through?: readonly string[];
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
}

const DEADLINE_MS = 20_000;

/**
 * A process of its own that runs a file of test/programs, or at a URL, with plain Node, or another interpreter. It is
 * told things, and says things, as lines of JSON. Killed at the end of the test at the latest.
 */
export class Program {
  readonly messages: Message[] = [];
  readonly exited: Promise<Exit>;
  readonly #name: string;
  readonly #child: ChildProcess;
  readonly #waiting = new Set<() => void>();
  readonly #taken = new Set<Message>();
  #stderr = "";
  #exit: Exit | undefined;

  constructor(name: string, input: unknown = {}, options: ProgramOptions = {}) {
    const { interpreter = process.execPath, through = [], env = {} } = options;
    const file = fileURLToPath(new URL(name, new URL("../programs/", import.meta.url)));
    const [command = interpreter, ...args] = [...through, interpreter, file, JSON.stringify(input)];
    const child = spawn(command, args, { stdio: "pipe", env: { ...process.env, ...env } });
    this.#name = name;
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
    });
    child.stdin.on("error", () => {}); // it may be dead already
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.messages.push(JSON.parse(line) as Message);
      this.#look();
    });
    this.exited = new Promise((resolve) => {
      child.on("close", (code, signal) => {
        this.#exit = { code, signal, stderr: this.#stderr };
        resolve(this.#exit);
        this.#look();
      });
    });
    onTestFinished(async () => {
      child.kill("SIGKILL");
      await this.exited;
    });
  }

  /** The next message of that kind which nobody has taken yet. */
  async hears(say: string, deadlineMs: number = DEADLINE_MS): Promise<Message> {
    const message = await this.#wait(() => this.messages.find((one) => one.say === say && !this.#taken.has(one)), {
      what: `to say "${say}"`,
      deadlineMs,
    });
    this.#taken.add(message);
    return message;
  }

  said(say: string): Message[] {
    return this.messages.filter((message) => message.say === say);
  }

  tell(message: unknown): void {
    this.#child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends the process without giving it the chance to do anything about it. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.exited;
  }

  /** Closes the program's input and waits until it has ended, well. */
  async end(deadlineMs: number = DEADLINE_MS): Promise<void> {
    this.#child.stdin?.end();
    const { code, signal, stderr } = await this.#wait(() => this.#exit, { what: "to end", deadlineMs });
    if (code !== 0) throw new Error(`${this.#name} ended with ${code ?? signal}: ${stderr}`);
  }

  /** Waits until the process has ended, however. */
  ends(deadlineMs: number = DEADLINE_MS): Promise<Exit> {
    return this.#wait(() => this.#exit, { what: "to end", deadlineMs });
  }

  #look(): void {
    for (const look of this.#waiting) look();
  }

  #wait<T>(find: () => T | undefined, { what, deadlineMs }: { what: string; deadlineMs: number }): Promise<T> {
    return new Promise((resolve, reject) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(look);
      };
      const fail = (why: string): void => {
        done();
        reject(new Error(`Waited for ${this.#name} ${what}, ${why}. ${this.#stderr}`));
      };
      const look = (): void => {
        const found = find();
        if (found === undefined) {
          if (this.#exit !== undefined) fail(`but it ended (${this.#exit.code ?? this.#exit.signal})`);
          return;
        }
        done();
        resolve(found);
      };
      const timer = setTimeout(() => fail(`but it did not within ${deadlineMs} ms`), deadlineMs);
      this.#waiting.add(look);
      look();
    });
  }
}
