#!/usr/bin/env node
import { dispatch } from "./dispatch.ts";
import { bearClosedPipes } from "./output.ts";

bearClosedPipes();
process.exitCode = await dispatch(process.argv.slice(2));
