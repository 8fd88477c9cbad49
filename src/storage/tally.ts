/** Counts what is under way, and tells when nothing is. */
export class Tally {
  #count = 0;
  #waiting: (() => void)[] = [];

  begin(): void {
    this.#count++;
  }

  end(): void {
    this.#count--;
    if (this.#count > 0) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async idle(): Promise<void> {
    while (this.#count > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}
