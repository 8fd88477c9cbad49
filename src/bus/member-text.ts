/**
 * The text of one member's value in a JSON object, as it stands there: numbers that `JSON.parse` would round keep
 * their digits. The last one counts if there are several of the name. `json` must be valid.
 */
export function memberText(json: string, name: string): string | undefined {
  let found: string | undefined;
  let depth = 0;
  let key = "";
  let start = 0;
  for (let at = 0; at < json.length; at++) {
    const character = json[at];
    if (character === '"') {
      const end = endOfString(json, at);
      if (depth === 1 && start === 0) key = JSON.parse(json.slice(at, end));
      at = end - 1;
    } else if (character === "{" || character === "[") depth++;
    else if (character === ":" && depth === 1) start = at + 1;
    else if (depth === 1 && (character === "," || character === "}")) {
      if (key === name && start > 0) found = json.slice(start, at).trim();
      start = 0;
    }
    if (character === "}" || character === "]") depth--;
  }
  return found;
}

/** Where the string that begins at `start` is over. */
function endOfString(json: string, start: number): number {
  let at = start + 1;
  while (json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at + 1;
}
