import { describeTarget, type PostgresTarget } from "../postgres-target.ts";
import { openSession } from "./connect.ts";
import { toStorageError } from "./failures.ts";

/** Whether the schema has our tables. Rejects with `StorageError`. */
export async function hasTables(target: PostgresTarget): Promise<boolean> {
  const session = await openSession(target);
  try {
    const { rows } = await session.client.query<{ there: boolean }>("SELECT to_regclass($1) IS NOT NULL AS there", [
      `"${target.schema}".messages`,
    ]);
    return rows[0]?.there === true;
  } catch (error) {
    throw toStorageError(error, describeTarget(target));
  } finally {
    await session.close();
  }
}
