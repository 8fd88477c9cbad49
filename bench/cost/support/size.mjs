/** With `--quick` everything is tiny: that shows whether the programs work, and says nothing about speed. */
export const quick = process.argv.includes("--quick");

export const sized = (full, tiny) => (quick ? tiny : full);

/** Odd, so that a median is one of the rounds. */
export const ROUNDS = sized(7, 3);
