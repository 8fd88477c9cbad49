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
