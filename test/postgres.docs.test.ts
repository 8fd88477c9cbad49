import { randomUUID } from "node:crypto";
import { describe } from "vitest";
import { testPrograms } from "./support/doc-programs.ts";
import { tempLocation } from "./support/location.ts";

describe("the code in the documentation that needs PostgreSQL runs", () => {
  const written = "postgres://app:secret@db.example.com/app";
  testPrograms("postgres", (text) => {
    const real = new URL(tempLocation());
    // What names a schema of its own gets one of its own.
    const schema = `doc_${randomUUID().replaceAll("-", "")}`;
    return text.replaceAll(written, real.href).replaceAll('schema: "jobs"', `schema: "${schema}"`);
  });
});
