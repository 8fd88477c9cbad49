const TASK = { task: "send-email", to: "hello@example.com" };
/** Of an object with a number of five digits and no text. */
const OTHER_BYTES = 68;
let filler = "";

/** A payload of so many bytes of JSON, give or take a few. */
export function payloadOf(n, bytes = 100) {
  if (filler.length !== bytes - OTHER_BYTES) filler = "x".repeat(bytes - OTHER_BYTES);
  return { ...TASK, n, text: filler };
}
