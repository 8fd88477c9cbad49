const digits = (value) => (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);

/** A figure with about three digits. */
export const figure = (value) =>
  Number.isFinite(value)
    ? value.toLocaleString("en-US", { maximumFractionDigits: digits(value), minimumFractionDigits: digits(value) })
    : "–";

/** How many times better ours was. */
export const times = (ours) => (ours === undefined ? "" : `× ${figure(ours)}`);

/** What came out for one side, for people who watch. */
export function line({ unit }, { side, value, ours, jobs, note, p99, wrong, reason, declined }) {
  if (value === undefined) return `${side}: – (${declined ?? reason.split("\n")[0]})`;
  const parts = [`${side}: ${figure(value)} ${unit}`];
  if (ours !== undefined) parts.push(`ours ${times(ours)}`);
  if (p99 !== undefined) parts.push(`p99 ${figure(p99)}`);
  parts.push(`${jobs} jobs`);
  if (note !== undefined) parts.push(note);
  if (wrong !== undefined) parts.push(`NOT EXACT: ${wrong.join("; ")}`);
  if (reason !== undefined) parts.push(`failed later: ${reason.split("\n")[0]}`);
  return parts.join("; ");
}
