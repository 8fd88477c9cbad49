import { ROUNDS } from "./size.mjs";

/**
 * Measures both sides in turn, `{ own, limit }` a round. Whoever comes first changes from round to round, so that a
 * machine that slows down or speeds up meanwhile favours nobody. One more round before warms both up.
 */
export async function alternate(own, limit) {
  await limit();
  await own();
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) {
    const result = {};
    const sides = [
      async () => {
        result.limit = await limit();
      },
      async () => {
        result.own = await own();
      },
    ];
    if (round % 2 === 1) sides.reverse();
    for (const side of sides) await side();
    rounds.push(result);
  }
  return rounds;
}

/** One of the figures that the sides of a round consist of. */
export function pick(rounds, name) {
  return rounds.map(({ own, limit }) => ({ own: own[name], limit: limit[name] }));
}

export function median(values) {
  return percentile(values, 50);
}

export function percentile(values, percent) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)];
}
