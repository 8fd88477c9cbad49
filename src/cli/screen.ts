const ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"; // the other screen, no cursor, long lines end at the edge
const LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME = "\x1b[H";
const CLEAR_REST_OF_LINE = "\x1b[K";
const CLEAR_BELOW = "\x1b[J";

/** A view that is redrawn in place, on the terminal's other screen: what was there before comes back at the end. */
export class Screen {
  readonly #terminal: NodeJS.WriteStream;
  readonly #draw: (columns: number) => readonly string[];

  /** `draw` gives the lines; it is asked again whenever the terminal changes its size. */
  constructor(terminal: NodeJS.WriteStream, draw: (columns: number) => readonly string[]) {
    this.#terminal = terminal;
    this.#draw = draw;
    terminal.write(ENTER);
    terminal.on("resize", this.redraw);
    process.on("exit", this.#leave); // whatever ends this process
    process.on("SIGTSTP", this.#pause);
    process.on("SIGCONT", this.#resume);
  }

  readonly redraw = (): void => {
    const lines = this.#lines().slice(0, this.#terminal.rows || undefined);
    this.#terminal.write(`${HOME}${lines.map((line) => line + CLEAR_REST_OF_LINE).join("\r\n")}${CLEAR_BELOW}`);
  };

  #lines(): readonly string[] {
    return this.#draw(this.#terminal.columns || 80);
  }

  /** Leaves the last view on the ordinary screen. */
  end(): void {
    this.#terminal.off("resize", this.redraw);
    process.off("exit", this.#leave).off("SIGTSTP", this.#pause).off("SIGCONT", this.#resume);
    this.#leave();
    this.#terminal.write(`${this.#lines().join("\n")}\n`);
  }

  readonly #leave = (): void => {
    this.#terminal.write(LEAVE);
  };

  /** Ctrl-Z. */
  readonly #pause = (): void => {
    this.#leave();
    process.kill(process.pid, "SIGSTOP");
  };

  readonly #resume = (): void => {
    this.#terminal.write(ENTER);
    this.redraw();
  };
}
