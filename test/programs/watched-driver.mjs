import { loadDriver } from "../../dist/storage/sqlite/driver.js";

/** The real SQLite library, with `around(sql, execute)` in the place of each execution. */
export function watchedDriver(around) {
  const driver = loadDriver();
  const open = (file) => {
    const db = driver.open(file);
    return {
      get inTransaction() {
        return db.inTransaction;
      },
      exec: (sql) => around(sql, () => db.exec(sql)),
      prepare: (sql) => {
        const statement = db.prepare(sql);
        return {
          run: (parameters) => around(sql, () => statement.run(parameters)),
          runRows: (rows) => around(sql, () => statement.runRows(rows)),
          get: (parameters) => around(sql, () => statement.get(parameters)),
          all: (parameters) => around(sql, () => statement.all(parameters)),
        };
      },
      copyTo: (target, progress) => db.copyTo(target, progress),
      close: () => db.close(),
    };
  };
  return { ...driver, open };
}
