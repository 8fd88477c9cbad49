// What the check for silent losses costs beside JSON.stringify: npm run build && node bench/encode.mjs
import { encodeJson } from "../dist/json.js";

class Point {
  constructor(x, y) {
    this.x = x;
    this.y = y;
  }
}

const payloads = {
  "flat, 105 B": {
    task: "send-email",
    to: "hello@example.com",
    subject: "Welcome to the club",
    attempt: 1,
    urgent: false,
  },
  "nested, 155 B": {
    id: 4711,
    customer: { id: 12, name: "Ada Lovelace" },
    items: [
      { sku: "a-1", n: 2, price: 9.5 },
      { sku: "b-2", n: 1, price: 30 },
    ],
    at: "2026-01-01T00:00:00Z",
  },
  "100 rows, 6 kB": Array.from({ length: 100 }, (_, id) => ({ id, name: `name ${id}`, ok: true, score: id / 3 })),
  "long text, 20 kB": { text: "All work and no play makes Jack a dull boy. ".repeat(450) },
  "a Date": { id: 1, at: new Date(), kind: "tick", tags: ["a", "b"] },
  "a URL (copied)": { id: 1, url: new URL("https://example.com/a/b"), kind: "fetch" },
  "a class (copied)": { id: 1, from: new Point(1, 2), to: new Point(3, 4) },
};

function nanoseconds(encode, payload) {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 7; round++) {
    const start = process.hrtime.bigint();
    let calls = 0;
    let elapsed = 0n;
    while (elapsed < 50_000_000n) {
      for (let i = 0; i < 100; i++) encode(payload);
      calls += 100;
      elapsed = process.hrtime.bigint() - start;
    }
    best = Math.min(best, Number(elapsed) / calls);
  }
  return best;
}

console.log(`Node ${process.version}, best of 7 rounds, nanoseconds a call`);
console.log(`${"payload".padEnd(18)}${"stringify".padStart(10)}${"encodeJson".padStart(12)}${"ratio".padStart(8)}`);
for (const [name, payload] of Object.entries(payloads)) {
  const plain = nanoseconds(JSON.stringify, payload);
  const checked = nanoseconds(encodeJson, payload);
  const ratio = (checked / plain).toFixed(2);
  console.log(
    `${name.padEnd(18)}${plain.toFixed(0).padStart(10)}${checked.toFixed(0).padStart(12)}${ratio.padStart(8)}`,
  );
}
