import { ratio } from "./format.mjs";
import { median } from "./rounds.mjs";

/** A section tells its figures to cost.mjs, each as one line of JSON. */
function tell(figure) {
  process.stdout.write(`${JSON.stringify(figure)}\n`);
}

const BOUNDS = {
  atMost: { sign: "≤", holds: (value, bound) => value <= bound },
  atLeast: { sign: "≥", holds: (value, bound) => value >= bound },
};

/** A bound of 1 ms needs no decimals, however many the value has. */
const withoutZeros = (text) => text.replace(/\.(\d*?)0+(?= |$)/, (_, digits) => (digits === "" ? "" : `.${digits}`));

/** A figure with a bound, `{ atMost }` or `{ atLeast }`, or with none where nothing was asked. */
export function tellValue(what, bounds, value, format, detail) {
  const figure = { what, reached: format(value), detail };
  const [[kind, bound] = []] = Object.entries(bounds ?? {});
  if (kind !== undefined) {
    const { sign, holds } = BOUNDS[kind];
    figure.asked = `${sign} ${withoutZeros(format(bound))}`;
    figure.ok = holds(value, bound);
  }
  tell(figure);
}

/** The median of the rounds' ratios, own to limit. `format` writes the two absolute figures beside it. */
export function tellRatio(what, bounds, rounds, format, other = "at the limit") {
  const ratios = rounds.map(({ own, limit }) => own / limit);
  const side = (name) => format(median(rounds.map((round) => round[name])));
  const spread = `the rounds from ${ratio(Math.min(...ratios))} to ${ratio(Math.max(...ratios))}`;
  tellValue(what, bounds, median(ratios), ratio, `${side("own")}, and ${side("limit")} ${other}; ${spread}`);
}

/** What was checked on the way. A check that fails is an error, so this is only told when all is well. */
export function tellChecked(what, asked, detail) {
  tell({ what, asked, reached: "yes", ok: true, detail });
}
