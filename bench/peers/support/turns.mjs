/** Lets a function wait for its turn, again and again: `next()` in it resolves when `step()` is called here. */
export class Turns {
  #arrived;
  #release;
  #told;
  #ended;

  /** Runs up to the first `next()`. */
  begin(run) {
    const next = () => {
      this.#arrived();
      return new Promise((resolve) => {
        this.#release = resolve;
      });
    };
    next.tell = (value) => {
      this.#told = value;
    };
    const arrived = this.#arrival();
    this.#ended = run(next);
    this.#ended.catch(() => {});
    return Promise.race([arrived, this.#ended]);
  }

  /** Lets it go on to its next `next()`, and gives what it told. */
  async step() {
    const arrived = this.#arrival();
    this.#release(true);
    await Promise.race([arrived, this.#ended]);
    return this.#told;
  }

  /** Its `next()` resolves to `false`: it comes to its end. */
  async end() {
    this.#release?.(false);
    await this.#ended;
  }

  #arrival() {
    return new Promise((resolve) => {
      this.#arrived = resolve;
    });
  }
}
