/*
 * What a TypeScript program can say with PostgreSQL, and what the compiler must not let it say. It is compiled and run as
 * typed.ts is, where no server is, and no package pg.
 */
import { type Location, SimpleQueue, StorageError } from "localqueue";
import { BusTopology, EventBus, type listSubscriptions } from "localqueue/bus";
import { type PostgresOptions, type PostgresPool, postgres, type Location as SameLocation } from "localqueue/postgres";

/** Compiles only if the two types are the same; `any` is the same as nothing else. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(..._: Same<A, B> extends true ? [] : ["these types differ"]): void => {};

const options: PostgresOptions = {
  connectionString: "postgres://ada:secret@db.example.com/app",
  schema: "jobs",
};
const pool: PostgresPool = { options: { host: "db.example.com" }, connect: async () => ({}) };

/** What must not compile; none of it is called. */
const mistakes: readonly (() => unknown)[] = [
  // @ts-expect-error: a misspelled option
  () => postgres({ url: "postgres://db.example.com/app" }),
  // @ts-expect-error: the options are no location
  () => new SimpleQueue(options),
  // @ts-expect-error: a pool is none either
  () => new SimpleQueue(pool),
];

async function main(): Promise<void> {
  const location = postgres(options);
  same<typeof location, Location>();
  same<Location, SameLocation>();
  const shared = postgres({ pool });
  const bus = new EventBus(shared, { name: "app", topology: new BusTopology({ email: ["*"] }) });
  same<Parameters<typeof listSubscriptions>[0], string | URL | Location>();
  await bus.close();

  const queue = new SimpleQueue<string>(location);
  const error = await queue.put("hello").catch((reason: unknown) => reason);
  await queue.close();
  const { code, message } = error instanceof StorageError ? error : { code: "none", message: String(error) };
  process.stdout.write(JSON.stringify({ location, schema: shared.schema, code, message, refused: mistakes.length }));
}

main().catch((error: unknown) => {
  process.exitCode = 1;
  process.stderr.write(String(error));
});
