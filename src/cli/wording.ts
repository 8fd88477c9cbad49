/** 1234567 as "1,234,567". */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}

/** "1 job", "2 jobs"; with another unit "2 events". */
export function jobs(count: number, unit = "job"): string {
  return `${grouped(count)} ${unit}${count === 1 ? "" : "s"}`;
}

/** Milliseconds as "0.3 s". */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Milliseconds in the unit that suits them: "0.3 s", "12.0 min", "5.5 h", "3.2 days". */
export function duration(ms: number): string {
  const units = [
    ["days", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
  ] as const;
  const [unit, unitMs] = units.find(([, size]) => ms >= 2 * size) ?? ["s", 1_000];
  return `${(ms / unitMs).toFixed(1)} ${unit}`;
}

/** Bytes as "512 B", "1.5 MB". */
export function size(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1_000 ** power).toFixed(1)} ${["", "kB", "MB", "GB", "TB"][power]}`;
}

/** "2026-03-01 12:00:40Z". */
export function moment(date: Date): string {
  return `${date.toISOString().slice(0, 19).replace("T", " ")}Z`;
}

/** "walSizeBytes" as "wal size": the unit is with the value. */
export function labelOf(name: string): string {
  return name.replace(/(Ms|Bytes)$/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** No longer than `length`. */
export function shortened(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, Math.max(0, length - 1))}…`;
}

/** On one line, and without what would command the terminal or reverse the text: such characters become escapes. */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Without the passwords in URLs of databases. */
export function withoutPassword(text: string): string {
  return text
    .replace(/(\bpostgres(?:ql)?:\/\/[^\s:@/?]*):\S*@/gi, "$1:***@")
    .replace(/([?&]password=)[^\s&'"]*/gi, "$1***");
}

/** With a full stop at the end. */
export function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** A command line as a shell reads it. */
export function shellLine(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** The known name that was most likely meant, if one is near enough. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const typed = name.toLowerCase().slice(0, 50);
  let best: { readonly candidate: string; readonly distance: number } | undefined;
  for (const candidate of known) {
    const isBeginning = typed.length > 1 && candidate.startsWith(typed);
    const isJumbled = sorted(typed) === sorted(candidate);
    const distance = isBeginning || isJumbled ? 0 : editDistance(typed, candidate);
    const isNear = distance <= Math.max(1, candidate.length / 3);
    if (isNear && (best === undefined || distance < best.distance)) best = { candidate, distance };
  }
  return best?.candidate;
}

function sorted(text: string): string {
  return [...text].sort().join("");
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 0; i < a.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) {
      const substituted = (row[j] ?? 0) + (a[i] === b[j] ? 0 : 1);
      next.push(Math.min(substituted, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
