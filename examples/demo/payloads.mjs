import { createHash } from "node:crypto";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const webhooks = require("@octokit/webhooks-examples");

/** Real payloads of GitHub's webhooks. */
export const payloads = webhooks.flatMap(({ name: event, examples }) =>
  examples.map((payload, number) => ({ id: `${event}/${number}`, event, payload })),
);

/** Each payload is put once per round. */
export const ROUNDS = 8;

export function jobIdOf({ id }, round) {
  return `${id}#${round}`;
}

export function digest(payload) {
  return createHash("sha256").update(JSON.stringify(payload)).digest("hex");
}
