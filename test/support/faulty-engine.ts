import { TestEngine } from "./engine-harness.ts";
import { FaultyDriver } from "./faulty-driver.ts";
import { tempDirectory } from "./temp.ts";

/** An engine on a new file whose driver can be told to fail; its log begins after the opening. */
export function openFaulty(): { engine: TestEngine; driver: FaultyDriver } {
  const driver = new FaultyDriver();
  const engine = new TestEngine({ directory: tempDirectory(), driver });
  driver.log.length = 0;
  return { engine, driver };
}

export function statsOf(engine: TestEngine): unknown {
  const stats = engine.stats();
  engine.run();
  return stats.answer?.stats;
}
