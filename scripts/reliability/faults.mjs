// Faults that somebody might make, each as a small change of the sources; the proof has to notice every one of them.
// `by` names what is to notice it: layers of test/reliability, or files of test/. The first that does is shown.

const SQL = "src/storage/sqlite/statements.ts";
const HELD = "AND status = 1 AND receipt = :receipt AND lease_until > :now";

export const FAULTS = [
  {
    name: "M1 a transaction that begins without the lock",
    file: "src/storage/sqlite/connection.ts",
    find: `      db.exec("BEGIN IMMEDIATE");
    } catch (error) {
      if (storageErrorCode`,
    replace: `      db.exec("BEGIN");
    } catch (error) {
      if (storageErrorCode`,
    by: ["kills", "simulation"],
  },
  {
    name: "M2 an ack without a receipt",
    file: SQL,
    find: `"id = :id AND queue = :queue ${HELD}"`,
    replace: `"id = :id AND queue = :queue AND status = 1 AND lease_until > :now"`,
    by: ["model"],
  },
  {
    name: "M3 an ack after the lease",
    file: SQL,
    find: `"id = :id AND queue = :queue ${HELD}"`,
    replace: `"id = :id AND queue = :queue AND status = 1 AND receipt = :receipt"`,
    by: ["model"],
  },
  {
    name: "M4 a delivery that does not count once its lease has ended",
    file: SQL,
    find: "receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now\n    WHERE status = 1 AND lease_until <= :now",
    replace:
      "attempts = attempts - 1, receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now\n    WHERE status = 1 AND lease_until <= :now",
    by: ["model"],
  },
  {
    name: "M5 a clock that is read before the lock is there",
    file: "src/storage/sqlite/transitions.ts",
    find: "    return Math.round(this.#clock());\n  }\n",
    replace:
      "    return this.#frozen;\n  }\n  #frozen = 0;\n  freeze(): void {\n    this.#frozen = Math.round(this.#clock());\n  }\n",
    also: {
      file: "src/storage/sqlite/group-commit.ts",
      find: "    this.#transitions.forget(0);\n",
      replace: "    this.#transitions.forget(0);\n    this.#transitions.freeze();\n",
    },
    by: ["engine.clock.test.ts"],
  },
  {
    name: "M6 a flush that was asked for, and does not happen",
    file: "src/storage/sqlite/connection.ts",
    find: `PRAGMA synchronous = \${fsync ? "FULL" : "NORMAL"}`,
    replace: "PRAGMA synchronous = NORMAL",
    by: ["power"],
  },
  {
    name: "M7 a COMMIT that fails, and is reported as done",
    file: "src/storage/sqlite/group-commit.ts",
    find: "    } catch (error) {\n      return error;\n    }",
    replace: "    } catch {\n      return undefined;\n    }",
    by: ["simulation"],
  },
  {
    name: "M8 a COMMIT that fails, and is reported as certainly not done",
    file: "src/storage/sqlite/group-commit.ts",
    find: "const finding = this.#verify(performed, fsync);",
    replace: "const finding = ['undone', this.#verify(performed, fsync)][0];\n      repeated = true;",
    by: ["simulation"],
  },
  {
    name: "M9 names that are not unique",
    file: "src/storage/sqlite/schema.ts",
    find: "idx_messages_job_id: `CREATE UNIQUE INDEX",
    replace: "idx_messages_job_id: `CREATE INDEX",
    by: ["model"],
  },
  {
    name: "M10 a receipt that outlives its lease",
    file: SQL,
    find: "receipt = NULL, lease_until = NULL, releases = 0, updated_at = :now\n    WHERE status = 1 AND lease_until <= :now",
    replace: "lease_until = NULL, releases = 0, updated_at = :now\n    WHERE status = 1 AND lease_until <= :now",
    by: ["model"],
  },
  {
    name: "M11 an opening that does not wait for a lock",
    file: "src/storage/sqlite/connection.ts",
    find: "if (Date.now() > deadline || this.#options.cancelled?.()) throw error;",
    replace: "if (deadline > 0) throw error;",
    by: ["client.locks.test.ts", "reopening.test.ts", "slow-start.test.ts", "processes.test.ts", "crowd", "recovery"],
  },
  {
    name: "M12 a sleep until something is due, however long",
    file: "src/storage/sqlite/engine.ts",
    find: "    if (this.#claims.any) ms = Math.min(ms, stalled ? STALLED_MS : this.#neighbours.pollMs(now));\n",
    replace: "",
    by: ["model"],
  },
  {
    name: "M13 a purge that deletes what is being worked on",
    file: SQL,
    find: "AND queue = :queue AND status = 2\n    AND updated_at < :before",
    replace: "AND queue = :queue AND status IN (1, 2)\n    AND updated_at < :before",
    by: ["model"],
  },
  {
    name: "M14 a backup that copies the file as any file",
    file: "src/storage/sqlite/backup.ts",
    find: "await db.copyTo(draft, progress);",
    replace: "fs.copyFileSync(path.join(context.directory, DATABASE_FILE), draft);",
    by: ["backup.test.ts"],
  },
  {
    name: "M15 an extension after the lease",
    file: SQL,
    find: `extend: \`UPDATE messages SET lease_until = :now + :ms, updated_at = :now WHERE \${HELD}\``,
    replace:
      "extend: `UPDATE messages SET lease_until = :now + :ms, updated_at = :now WHERE id = :id AND queue = :queue AND status = 1 AND receipt = :receipt`",
    by: ["model"],
  },
  {
    name: "M16 a commit that empties the log, and waits for readers",
    file: "src/storage/sqlite/connection.ts",
    find: `    this.#db?.exec("COMMIT");\n    if (completed`,
    replace: `    this.#db?.exec("COMMIT");
    this.#db?.exec("PRAGMA busy_timeout = 5000; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = 50");
    if (completed`,
    by: ["long-readers.test.ts", "event-loop.test.ts"],
  },
  {
    name: "an answer before the COMMIT",
    file: "src/storage/sqlite/group-commit.ts",
    find: "    const error = this.#commit();\n    if (error === undefined) succeedAll(performed);\n",
    replace:
      "    succeedAll(performed);\n    const error = this.#commit();\n    if (error === undefined) performed.length = 0;\n",
    by: ["simulation"],
  },
  {
    name: "counts in a transaction of their own",
    file: "src/storage/sqlite/group-commit.ts",
    find: "      this.#transitions.writeCounts();\n    } catch",
    replace: "    } catch",
    also: {
      file: "src/storage/sqlite/group-commit.ts",
      find: "    const error = this.#commit();\n",
      replace: "    const error = this.#commit();\n    if (error === undefined) this.#transitions.writeCounts();\n",
    },
    by: ["log-prefixes"],
  },
  {
    name: "an opening that removes the log of whoever crashed",
    file: "src/storage/sqlite/connection.ts",
    find: `      this.#mark = fs.openSync(path.dirname(this.file), "r");\n`,
    replace: `      this.#mark = fs.openSync(path.dirname(this.file), "r");
      fs.rmSync(this.file + "-wal", { force: true });\n`,
    by: ["log-prefixes"],
  },
  {
    name: "an opening that removes the shared memory of whoever crashed, or is opening, too",
    file: "src/storage/sqlite/connection.ts",
    find: `      this.#mark = fs.openSync(path.dirname(this.file), "r");\n`,
    replace: `      this.#mark = fs.openSync(path.dirname(this.file), "r");
      fs.rmSync(this.file + "-shm", { force: true });\n`,
    by: ["recovery", "processes.test.ts"],
  },
  {
    name: "an opening that cuts off the end of a log, as if it were torn",
    file: "src/storage/sqlite/connection.ts",
    find: `      this.#mark = fs.openSync(path.dirname(this.file), "r");\n`,
    replace: `      this.#mark = fs.openSync(path.dirname(this.file), "r");
      const size = fs.statSync(this.file + "-wal", { throwIfNoEntry: false })?.size ?? 0;
      if (size > 0) fs.truncateSync(this.file + "-wal", size - 1);\n`,
    by: ["recovery"],
  },
  {
    name: "no flush at all where none was asked for, not even before a checkpoint",
    file: "src/storage/sqlite/connection.ts",
    find: `PRAGMA synchronous = \${fsync ? "FULL" : "NORMAL"}`,
    replace: `PRAGMA synchronous = \${fsync ? "FULL" : "OFF"}`,
    by: ["power", "engine.batches.test.ts"],
  },
  {
    name: "a failed COMMIT whose frames stay in the log",
    file: "src/storage/sqlite/group-commit.ts",
    find: "      this.#transitions.mark();\n",
    replace: "",
    by: ["group-commit.outcome.test.ts"],
  },
  {
    name: "a damaged file that is kept open",
    file: "src/storage/sqlite/driver.ts",
    find: `["SQLITE_IOERR", "SQLITE_CORRUPT", `,
    replace: `["SQLITE_IOERR", `,
    also: { file: "src/storage/sqlite/driver.ts", find: "[10, 11, 26, 7, 14]", replace: "[10, 26, 7, 14]" },
    by: ["damage"],
  },
  {
    name: "a worker that waits for a damaged file to heal",
    file: "src/patience.ts",
    find: `"READ_ONLY", "CONNECTION"`,
    replace: `"READ_ONLY", "CORRUPT", "CONNECTION"`,
    by: ["damage"],
  },
  {
    name: "a client that keeps every request",
    file: "src/storage/sqlite/client.ts",
    find: "    this.#requests.delete(request.command.id);\n",
    replace: "",
    by: ["soak"],
  },
  {
    name: "joined puts whose numbers are off by one",
    file: "src/storage/sqlite/enqueue.ts",
    find: "let id = last - PUT_ROWS + 1; id <= last",
    replace: "let id = last - PUT_ROWS; id < last",
    by: ["power"],
  },
  {
    name: "joined puts that are told each other's numbers",
    file: "src/storage/sqlite/steps.ts",
    find: "[enqueued[i] as Enqueued]",
    replace: "[enqueued[steps.length - 1 - i] as Enqueued]",
    by: ["power"],
  },
  {
    name: "joined puts of different queues",
    file: "src/storage/sqlite/joined-puts.ts",
    find: "if (puts[0] !== undefined && step.command.origin.queue !== puts[0].command.origin.queue) break;",
    replace: "",
    by: ["simulation", "engine.joined-puts.test.ts"],
  },
  {
    name: "joined puts that are not flushed, though some of them should be",
    file: "src/storage/sqlite/joined-puts.ts",
    find: "return this.parts.some(({ fsync }) => fsync);",
    replace: "return false;",
    by: ["engine.joined-puts.test.ts"],
  },
  {
    name: "joined puts of which one is answered twice",
    file: "src/storage/sqlite/joined-puts.ts",
    find: "    for (const part of this.parts) part.succeed();\n",
    replace: "    for (const part of this.parts) part.succeed();\n    this.parts[0]?.succeed();\n",
    by: ["simulation", "engine.joined-puts.test.ts"],
  },
  {
    name: "joined puts that fail, and of which one is not told",
    file: "src/storage/sqlite/joined-puts.ts",
    find: "    for (const part of this.parts) part.fail(error);\n",
    replace: "    for (const part of this.parts.slice(1)) part.fail(error);\n",
    by: ["simulation", "engine.joined-puts.test.ts"],
  },
  {
    name: "jobs that are claimed in the wrong order",
    file: SQL,
    find: `WHERE \${READY} ORDER BY id LIMIT 1)\n    RETURNING id`,
    replace: `WHERE \${READY} ORDER BY id DESC LIMIT 1)\n    RETURNING id`,
    by: ["model"],
  },
  {
    name: "leases that end a second early",
    file: SQL,
    find: "AND status = 1 AND lease_until <= :now\n      ORDER BY lease_until",
    replace: "AND status = 1 AND lease_until <= :now + 1000\n      ORDER BY lease_until",
    also: {
      file: SQL,
      find: "WHERE status = 1 AND lease_until <= :now AND id IN",
      replace: "WHERE status = 1 AND id IN",
    },
    by: ["model"],
  },
  {
    name: "delays that end a second early",
    file: SQL,
    find: `WHERE \${DUE} AND available_at <= :now\n`,
    replace: `WHERE \${DUE} AND available_at <= :now + 1000\n`,
    by: ["model"],
  },
  {
    name: "what a handler emits without its ack",
    file: "src/storage/sqlite/steps.ts",
    find: "if (this.#state !== undefined) transitions.emit(",
    replace: "transitions.emit(",
    by: ["model"],
  },
  {
    name: "a release that counts as a delivery",
    file: SQL,
    find: "THEN attempts - 1 ELSE attempts END",
    replace: "THEN attempts ELSE attempts END",
    by: ["model"],
  },
  {
    name: "a clock that was set back, and is not noticed at open",
    file: "src/storage/sqlite/clock-watch.ts",
    find: " || (unseen && this.#isAhead(now))",
    replace: "",
    by: ["model", "engine.clock.test.ts"],
  },
  {
    name: "a lease that ends anyway as the sign of a COMMIT",
    file: "src/storage/sqlite/steps.ts",
    find: " || !this.#moved) return",
    replace: ") return",
    by: ["simulation", "group-commit.outcome.test.ts"],
  },
  {
    name: "a batch that is carried out again without a look",
    file: "src/storage/sqlite/group-commit.ts",
    find: "if (finding !== undefined && (relieved || !repeated)) return",
    replace: "if (relieved || !repeated) return",
    by: ["simulation"],
  },
  {
    name: "an abort that does not ask the engine",
    file: "src/storage/sqlite/client.ts",
    find: "    if (request.batch !== undefined) this.#reject",
    replace: "    if (request.bytes >= 0) this.#reject",
    by: ["scheduler"],
  },
  {
    name: "a claim that was aborted too late, and keeps its jobs",
    file: "src/storage/sqlite/sqlite-storage.ts",
    find: "      await Promise.allSettled(deliveries.map((delivery) => this.#giveBack(delivery)));\n",
    replace: "",
    by: ["scheduler"],
  },
  {
    name: "a dead engine whose commands certainly failed",
    file: "src/storage/sqlite/client.ts",
    find: "engineDied(this.#directory, request.batch === undefined, cause)",
    replace: "engineDied(this.#directory, false, cause)",
    by: ["scheduler", "engine-deaths"],
  },
  {
    name: "a dead engine that is asked on and on",
    file: "src/storage/sqlite/client.ts",
    find: "    this.#thread = undefined;\n    this.#ready = false;\n",
    replace: "",
    by: ["engine-deaths"],
  },
  {
    name: "a client that forgets the batches of a dead engine, but not their number",
    file: "src/storage/sqlite/client.ts",
    find: "    this.#ready = false;\n    this.#inFlight = 0;\n",
    replace: "    this.#ready = false;\n",
    by: ["scheduler"],
  },
];
