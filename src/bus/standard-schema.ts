import { InvalidEventError } from "../errors.ts";
import { pathStep } from "../json.ts";
import { wrongType } from "../options.ts";

/**
 * What is needed of a [Standard Schema](https://standardschema.dev), version 1, as zod, valibot, arktype and others
 * make them: `Input` is what is given and stored, `Output` what a handler gets.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a schema says about a value: what it makes of it, or what is wrong with it. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** One thing that is wrong, and where. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

const MAX_ISSUES = 3;

/** A schema threw: that says nothing about the value, and may be otherwise next time. */
export class SchemaFault extends InvalidEventError {}

/** By structure: schemas come from any library. Some of these make functions, some objects. */
export function checkSchema(value: unknown, name: string): StandardSchema {
  if (!isSchema(value)) throw wrongType(name, "a Standard Schema, such as those of zod, valibot and arktype", value);
  return value;
}

function isSchema(value: unknown): value is StandardSchema {
  try {
    const { version, validate } = (value as StandardSchema)["~standard"];
    return version === 1 && typeof validate === "function";
  } catch {
    return false;
  }
}

/**
 * What the schema makes of a value. Issues become the error that `refuse` makes of their text; a schema that threw is
 * a `SchemaFault` with that as its cause.
 */
export function validate(
  schema: StandardSchema,
  value: unknown,
  refuse: (issues: string) => Error,
): unknown | Promise<unknown> {
  const unusable = (cause: unknown): never => {
    throw new SchemaFault("The schema of the event threw", { cause });
  };
  const settle = ({ issues, output }: Verdict): unknown => {
    if (issues !== undefined) throw refuse(issues);
    return output;
  };
  let verdict: Verdict | Promise<Verdict>;
  try {
    const result = schema["~standard"].validate(value);
    verdict = "then" in result ? Promise.resolve(result).then(verdictOf) : verdictOf(result);
  } catch (error) {
    return unusable(error);
  }
  return verdict instanceof Promise ? verdict.then(settle, unusable) : settle(verdict);
}

interface Verdict {
  readonly issues?: string;
  readonly output?: unknown;
}

function verdictOf(result: SchemaResult<unknown>): Verdict {
  if (result.issues === undefined) return { output: result.value };
  const told = result.issues.slice(0, MAX_ISSUES).map(describeIssue);
  const more = result.issues.length - told.length;
  return { issues: `${told.join("; ")}${more > 0 ? `; and ${more} more` : ""}` };
}

/** In the words of the schema, of which some begin with the place: only it knows whether they quote the value. */
function describeIssue({ message, path = [] }: SchemaIssue): string {
  const keys = path.map((step) => (typeof step === "object" ? step.key : step));
  const steps = keys.map((key) => pathStep(typeof key === "symbol" ? String(key) : key));
  const place = steps.join("").replace(/^\./, "");
  return message.startsWith(place) ? message : `${place}: ${message}`;
}
