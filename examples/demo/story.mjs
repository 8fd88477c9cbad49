const started = performance.now();
const { stdout } = process;

/** Where somebody watches, the progress is one line that is written over; elsewhere it is a line now and then. */
const PROGRESS_MS = stdout.isTTY ? 100 : 500;
const CLEAR_LINE = "\r\x1b[K";

let progressAt = 0;
let progressShown = false;

export function secondsSoFar() {
  return (performance.now() - started) / 1_000;
}

export function number(value) {
  return value.toLocaleString("en-US");
}

export function tell(text = "") {
  stdout.write(`${progressShown ? CLEAR_LINE : ""}${text}\n`);
  progressShown = false;
}

export function tellWithTime(text) {
  tell(withTime(text));
}

export function tellProgress({ ready, processing, acked }) {
  if (performance.now() < progressAt) return;
  progressAt = performance.now() + PROGRESS_MS;
  const line = withTime(`${number(ready)} ready, ${processing} processing, ${number(acked)} acked`);
  if (!stdout.isTTY) return tell(line);
  stdout.write(`${CLEAR_LINE}${line}`);
  progressShown = true;
}

function withTime(text) {
  return `${secondsSoFar().toFixed(1).padStart(5)} s  ${text}`;
}
