import { figure } from "./lines.mjs";

/** What the picture shows, and what it calls it. */
const PANELS = {
  "put-1": "Put, one call after the other",
  "put-100": "Put, 100 calls in flight",
  "worker-1": "One worker, 1 slot",
  "worker-100": "One worker, 100 slots",
  "fleet-1": "4 processes put, 8 handle, 1 at a time",
  "fleet-50": "4 processes put, 8 handle, 50 at a time",
};
const COLUMNS = 2;
const [WIDTH, LABEL, BAR, ROW, HEAD, GAP] = [470, 200, 180, 20, 40, 24];

const STYLE = `
    text { font: 12px system-ui, sans-serif; fill: #24292f }
    .head { font-weight: 600; font-size: 14px }
    .value { fill: #57606a }
    rect { fill: #afb8c1 }
    .ours { fill: #0969da }
    .limit { fill: none; stroke: #8c959f; stroke-dasharray: 3 2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .value { fill: #8d96a0 }
      rect { fill: #484f58 }
      .ours { fill: #4493f8 }
      .limit { fill: none; stroke: #6e7681 }
    }`;

const escaped = (text) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);

const kindOf = (side) => (side.startsWith("localqueue") ? "ours" : side.startsWith("limit") ? "limit" : "peer");

/** One workload: a bar for each side that has a figure, the highest first. */
function panel(title, sides, peers, x, y) {
  const most = Math.max(...sides.map(({ value }) => value));
  const rows = sides.map(({ side, value }, index) => {
    const top = y + HEAD + index * ROW;
    const width = Math.max(1, (value / most) * BAR).toFixed(1);
    const bar = `x="${x + LABEL}" y="${top}" width="${width}" height="${ROW - 6}"`;
    return `
  <text x="${x + LABEL - 8}" y="${top + 11}" text-anchor="end">${escaped(peers[side].title)}</text>
  <rect class="${kindOf(side)}" ${bar}/>
  <text class="value" x="${x + LABEL + Number(width) + 6}" y="${top + 11}">${figure(value)}</text>`;
  });
  return `
  <text class="head" x="${x}" y="${y + 20}">${escaped(title)}</text>${rows.join("")}`;
}

/** Jobs a second in some of the workloads, without fsync, as SVG. */
export function picture({ peers, workloads }) {
  const panels = Object.entries(PANELS)
    .filter(([name]) => workloads[name] !== undefined)
    .map(([name, title]) => {
      const shown = workloads[name].sides.filter(({ side, value }) => value !== undefined && !side.endsWith("fsync"));
      return { title, sides: shown.sort((a, b) => b.value - a.value) };
    });
  const parts = [];
  let y = 36;
  for (let first = 0; first < panels.length; first += COLUMNS) {
    const row = panels.slice(first, first + COLUMNS);
    for (const [column, { title, sides }] of row.entries())
      parts.push(panel(title, sides, peers, column * WIDTH + 10, y));
    y += HEAD + Math.max(...row.map(({ sides }) => sides.length)) * ROW + GAP;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${COLUMNS * WIDTH} ${y}" role="img">
  <title>localqueue beside its peers, jobs a second</title>
  <style>${STYLE}
  </style>
  <text x="10" y="22">Jobs a second, more is better; without fsync. Dashed: what SQLite itself allows to a bare loop.</text>${parts.join("")}
</svg>
`;
}
