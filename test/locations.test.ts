import { SimpleQueue } from "localqueue";
import { postgres } from "localqueue/postgres";
import { describe, expect, test } from "vitest";

/** Nothing is connected: a queue does no I/O before its first operation. */
const open = (location: unknown): unknown => new SimpleQueue(location as string);

describe("a location is a directory or a PostgreSQL database", () => {
  test.each<[string, unknown]>([
    ["a path", "./data"],
    ["a file: URL", new URL("file:///srv/data")],
    ["a postgres: URL", "postgres://ada:secret@db.example.com:5432/app"],
    ["one that is a URL already", new URL("postgresql://db.example.com/app?schema=jobs")],
    ["one that leaves all to the environment", "postgres://"],
    ["one with a user and no host", "postgres://ada@/app?host=/var/run/postgresql"],
    ["one with a socket for a host", "postgres://%2Fvar%2Frun%2Fpostgresql/app"],
    ["one with a password of special characters", "postgres://ada:%2F%23%40@db.example.com/app"],
    ["what postgres() returns", postgres({ connectionString: "postgres://db.example.com/app", schema: "jobs" })],
    ["that of the environment", postgres()],
  ])("%s", (_, location) => {
    expect(open(location)).toBeInstanceOf(SimpleQueue);
  });

  test.each<[string, unknown, string]>([
    ["nothing", undefined, "Expected `location` to be a directory (a path or a file: URL), a postgres: URL, or what"],
    ["an empty text", "", 'got ""'],
    ["a number", 5, "got number"],
    ["what looks like a location", { kind: "postgres", schema: "jobs" }, "got object"],
    ["a URL of another kind", "mysql://db.example.com/app", "or a postgres: URL, got a mysql: URL"],
    ["a host that is none", "postgres://ada:secret@db example/app", "got one that cannot be read"],
    ["a password with a # that is not encoded", "postgres://ada:#secret@db.example.com/app", "% and two digits"],
    ["a password with a / that is not encoded", "postgres://ada:/secret@db.example.com/app", "% and two digits"],
    ["a password with a ? that is not encoded", "postgres://ada:1?secret@db.example.com/app", "% and two digits"],
    ["a password with a lone %", "postgres://ada:%secret@db.example.com/app", "% and two digits"],
    ["something behind a #", "postgres://ada:secret@db.example.com/app#jobs", "got one that cannot be read"],
    ["without slashes", "postgres:app", "Expected `location` to be a URL like postgres://user:password@host"],
    [
      "a schema with capitals",
      "postgres:///app?schema=Jobs",
      "Expected `schema` to be the name of a PostgreSQL schema",
    ],
    ["a schema with quotes", 'postgres:///app?schema=a"b', "digits and underscores, beginning with no digit"],
    ["a schema of the server's own", "postgres:///app?schema=pg_jobs", "and not with pg_, got"],
  ])("but not %s", (_, location, message) => {
    const error = refusal(() => open(location));
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(message);
    expect(everythingIn(error)).not.toContain("secret");
  });
});

describe("postgres() says which database it is", () => {
  test("and its schema, but nothing else to whoever prints it", () => {
    const location = postgres({ connectionString: "postgres://ada:secret@db.example.com/app?schema=jobs" });
    expect(JSON.stringify(location)).toBe('{"kind":"postgres","schema":"jobs"}');
    expect(everythingIn(location)).not.toContain("secret");
    expect(Object.isFrozen(location)).toBe(true);
  });

  test("the option for the schema goes before the parameter of the URL", () => {
    expect(postgres({ connectionString: "postgres:///app?schema=jobs", schema: "mails" }).schema).toBe("mails");
    expect(postgres({ connectionString: "postgres:///app?schema=jobs" }).schema).toBe("jobs");
    expect(postgres().schema).toBe("localqueue");
  });

  test.each<[string, unknown, string]>([
    ["a URL and a pool", { connectionString: "postgres://", pool: { options: {}, connect() {} } }, "got both"],
    ["a pool that is none", { pool: {} }, "Expected `pool` to be a Pool of the package pg, got `Object` (object)"],
    ["a URL that is none", { connectionString: 5 }, "Expected `connectionString` to be a string"],
    ["a directory", { connectionString: "./data" }, "Expected `connectionString` to be a URL like postgres://"],
    ["a schema that is none", { schema: "a-b" }, 'got "a-b"'],
    ["an unknown option", { url: "postgres://" }, "Unknown option `url`; known: `connectionString`"],
  ])("%s is refused", (_, options, message) => {
    const error = refusal(() => postgres(options as object));
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(message);
  });
});

function refusal(make: () => unknown): unknown {
  try {
    make();
  } catch (error) {
    return error;
  }
  return undefined;
}

/** All that a logger could find in a value. */
function everythingIn(value: unknown): string {
  const seen: unknown[] = [];
  for (let one = value; one !== undefined; one = (one as Error).cause) seen.push(one);
  return seen
    .flatMap((one) => [
      String(one),
      ...Object.getOwnPropertyNames(one).map((name) => String(Reflect.get(one as object, name))),
    ])
    .join("\n");
}
