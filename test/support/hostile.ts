/** A function that throws `value`. */
export function throwing(value: unknown): () => never {
  return () => {
    throw value;
  };
}

/** Throws at whatever is done to it. */
export function hostile(target: object = {}): object {
  const traps = new Proxy({}, { get: () => throwing(new Error("trap")) });
  return new Proxy(target, traps);
}

/** An error whose getters throw. */
export function unreadableError(): Error {
  const properties = ["name", "message", "constructor", "errors"].map((name) => [
    name,
    { get: throwing(new Error(name)) },
  ]);
  return Object.defineProperties(new Error(), Object.fromEntries(properties));
}

/** A thenable that is no promise. */
export function thenable(then: (resolve: () => void, reject: (reason: unknown) => void) => void): object {
  // biome-ignore lint/suspicious/noThenProperty: that is the point
  return Object.defineProperty({}, "then", { value: then });
}
