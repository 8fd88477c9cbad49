const CANONICAL = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * A UUID in lower case with hyphens, from any spelling that Python knows: upper case, braces, `urn:uuid:`, without
 * hyphens. `undefined` for anything else.
 */
export function readUuid(value: unknown): string | undefined {
  if (typeof value !== "string" || value.length > 60) return undefined;
  if (CANONICAL.test(value)) return value;
  const bare = value.toLowerCase().replace(/^urn:uuid:/, "");
  const digits = bare.replace(/^\{(.*)\}$/, "$1").replaceAll("-", "");
  const uuid = digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  return CANONICAL.test(uuid) ? uuid : undefined;
}
