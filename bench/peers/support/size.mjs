/** With `--quick` everything is tiny: that shows whether the peers work, and says nothing about speed. */
export const quick = process.argv.includes("--quick");

const sized = (full, tiny) => (quick ? tiny : full);

export const ROUNDS = sized(3, 1);
/** How long what is measured in a round should take. */
export const ROUND_MS = sized(1_500, 200);
export const WARM_UP_MS = sized(700, 100);
export const BULK = sized(100_000, 2_000);
export const BACKLOG = sized(1_000_000, 3_000);
/** Peers that cannot fill their backlog in this time work on what they have. */
export const FILL_MS = sized(20_000, 500);
export const PACED_PUTS = sized(150, 20);
export const SETTLE_MS = sized(1_500, 300);
export const IDLE_MS = sized(4_000, 500);
export const CHURN_JOBS = sized(1_000_000, 3_000);
export const CHURN_MS = sized(30_000, 1_500);
/** Jobs of a side whose rate is not known yet. */
export const FIRST = sized(4_000, 240);
