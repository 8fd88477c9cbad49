/**
 * Classes whose instances are recognised across copies of this package, and across realms: the brand is a symbol of
 * the global registry on the prototype. `instanceof` would only know the class of this copy.
 */
export function brand(prototype: object, symbol: symbol): void {
  Object.defineProperty(prototype, symbol, { value: true });
}

/** Survives any value, also a proxy that throws. */
export function hasBrand(value: unknown, symbol: symbol): value is object {
  try {
    return typeof value === "object" && value !== null && Reflect.get(value, symbol) === true;
  } catch {
    return false;
  }
}

/** Hides in an object what only this package shall read, and any copy of it can. */
export function hide<T extends object>(object: T, symbol: symbol, secret: object): T {
  return Object.defineProperty(object, symbol, { value: secret });
}

/** What is hidden in an object or a function; `undefined` for any other value. Survives any of them, as `hasBrand`. */
export function hiddenIn<S extends object>(value: unknown, symbol: symbol): S | undefined {
  try {
    const secret: unknown = Reflect.get(value as object, symbol);
    return typeof secret === "object" && secret !== null ? (secret as S) : undefined;
  } catch {
    return undefined;
  }
}
