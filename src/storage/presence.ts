import { statSync } from "node:fs";
import path from "node:path";
import { type Location, placeOf } from "./location.ts";
import { DATABASE_FILE } from "./sqlite/files.ts";

/**
 * What a location must have and has not before there is anything to look at; nothing is created. `undefined` = it is
 * there. Where a file cannot be seen, opening it will tell why; a server says so here.
 */
export async function whatLacks(location: string | URL | Location): Promise<string | undefined> {
  const place = placeOf(location);
  if (typeof place === "string") return hasFile(place) ? undefined : DATABASE_FILE;
  const { hasTables } = await import("./postgres/presence.ts");
  return (await hasTables(place)) ? undefined : `tables of localqueue in its schema ${place.schema}`;
}

function hasFile(directory: string): boolean {
  try {
    return statSync(path.join(directory, DATABASE_FILE), { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ENOTDIR";
  }
}
