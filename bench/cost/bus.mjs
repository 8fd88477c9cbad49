// What events cost: a dispatch to one, five and fifty subscriptions, and the way from there to their handlers.
import { randomUUID } from "node:crypto";
import { performance } from "node:perf_hooks";
import { BusTopology, defineEvent, EventBus } from "../../dist/bus/index.js";
import { EnqueueItem } from "../../dist/index.js";
import { withDirectory } from "./support/directory.mjs";
import { assertExact, assertStats } from "./support/exact.mjs";
import { tellChecked, tellRatio } from "./support/figures.mjs";
import { number, perSecond, time } from "./support/format.mjs";
import { withLimit } from "./support/limit.mjs";
import { payload } from "./support/payload.mjs";
import { inLanes, withQueue } from "./support/queue.mjs";
import { alternate, median } from "./support/rounds.mjs";
import { ROUNDS, sized } from "./support/size.mjs";

const MailRequested = defineEvent("mail.requested");
/** Dispatches whose code the engine of JavaScript has yet to compile. */
const WARM_UP = sized(200, 10);
/** What is stored of an event, whose length is the same for all. */
const data = {
  event_id: randomUUID(),
  correlation_id: randomUUID(),
  causation_id: null,
  event_type: MailRequested.type,
  event_schema: MailRequested.schema,
  event_created_at: "2026-01-02T03:04:05.678000+00:00",
  payload,
};
const envelope = Buffer.from(JSON.stringify(data));

const namesOf = (subscriptions) =>
  Array.from({ length: subscriptions }, (_, index) => `s${String(index).padStart(2, "0")}`);
const queuesOf = (subscriptions) => namesOf(subscriptions).map((name) => `__bus__:bench:${name}`);

/** Lends a bus in a new directory, whose file is open. */
function withNewBus(subscriptions, work) {
  return withDirectory(async (directory) => {
    const names = namesOf(subscriptions);
    const topology = new BusTopology(Object.fromEntries(names.map((name) => [name, [MailRequested]])));
    const bus = new EventBus(directory, { name: "bench", topology });
    try {
      await bus.subscription(names[0]).stats();
      return await work(bus, names, directory);
    } finally {
      await bus.close();
    }
  });
}

async function timed(count, work) {
  const start = performance.now();
  for (let i = 0; i < count; i++) await work();
  return (performance.now() - start) / count;
}

/** How long a dispatch takes, one after the other, in milliseconds. */
function dispatches(subscriptions, events) {
  return withNewBus(subscriptions, async (bus, names) => {
    const dispatch = () => bus.dispatch(MailRequested(payload));
    await timed(WARM_UP, dispatch);
    const took = await timed(events, dispatch);
    for (const name of names) await assertStats(bus.subscription(name), { ready: WARM_UP + events });
    return took;
  });
}

/** The same rows, each event in a transaction of its own. */
function limitOfDispatches(subscriptions, events) {
  const queues = queuesOf(subscriptions);
  return withLimit({}, async (file) => {
    const ids = Array.from({ length: WARM_UP + events }, () => randomUUID());
    const dispatch = () => file.fanOut(envelope, [ids.pop()], queues);
    for (let i = 0; i < WARM_UP; i++) dispatch();
    const start = performance.now();
    for (let i = 0; i < events; i++) dispatch();
    return (performance.now() - start) / events;
  });
}

for (const [subscriptions, events] of [
  [1, sized(2_000, 20)],
  [5, sized(1_000, 20)],
  [50, sized(200, 20)],
]) {
  const rounds = await alternate(
    () => dispatches(subscriptions, events),
    () => limitOfDispatches(subscriptions, events),
  );
  const whom = subscriptions === 1 ? "one subscription" : `${subscriptions} subscriptions`;
  tellRatio(`dispatch to ${whom}, one after the other: time`, undefined, rounds, time);
}

const FAN_OUT = 50;
const CALLS = sized(100, 20);
const STRETCH = sized(20, 10);

/**
 * Dispatches and batches of as many jobs as an event has deliveries, in turn and in one file; the medians of both. What
 * they put stays where it is, or is done after each stretch, outside the clock.
 */
function besidePutMany(isHandled) {
  return withNewBus(FAN_OUT, (bus, names, directory) =>
    withQueue(directory, {}, async (queue) => {
      for (const name of names) bus.subscription(name).handler(MailRequested, () => {});
      const times = { own: [], limit: [] };
      const sides = {
        own: () => bus.dispatch(MailRequested(payload)),
        limit: () =>
          queue.putMany(Array.from({ length: FAN_OUT }, () => new EnqueueItem(data, { jobId: randomUUID() }))),
      };
      for (let call = 0; call < STRETCH + CALLS; call++) {
        for (const side of call % 2 === 0 ? ["own", "limit"] : ["limit", "own"]) {
          const took = await timed(1, sides[side]);
          if (call >= STRETCH) times[side].push(took);
        }
        if (isHandled && call % STRETCH === STRETCH - 1) await handle(bus, queue);
      }
      const done = isHandled ? "acked" : "ready";
      for (const name of names) await assertStats(bus.subscription(name), { [done]: STRETCH + CALLS });
      await assertStats(queue, { [done]: FAN_OUT * (STRETCH + CALLS) });
      return { own: median(times.own), limit: median(times.limit) };
    }),
  );
}

/** Acknowledges all there is. */
async function handle(bus, queue) {
  await bus.run({ idleTimeoutMs: 20 });
  for (;;) {
    const jobs = await queue.getMany(1_000, { timeoutMs: 0 });
    if (jobs.length === 0) return;
    await Promise.all(jobs.map((job) => job.ack()));
  }
}

for (const [which, isHandled] of [
  ["which nobody handles", false],
  ["which are handled meanwhile", true],
]) {
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) rounds.push(await besidePutMany(isHandled));
  const what = `dispatch to ${FAN_OUT} subscriptions beside putMany of ${FAN_OUT} jobs, ${which}: time`;
  tellRatio(what, { atMost: 1.2 }, rounds, time, "for the jobs, each with a jobId");
}
tellChecked("each subscription has each event", "exactly", "by the counts, after each round");

const SUBSCRIPTIONS = 5;
const CONCURRENCY = 100;
const FILL = 100;
const LANES = 4;
const FIRST = sized(500, 100);
const EVENTS = sized(2_000, 200);

/** Dispatches so many events, a hundred in each transaction; returns their ids. */
async function dispatchMany(bus, events) {
  const ids = [];
  let left = events;
  await inLanes(
    LANES,
    () => left > 0,
    async () => {
      const count = Math.min(left, FILL);
      left -= count;
      const receipts = await bus.dispatchMany(Array.from({ length: count }, () => MailRequested(payload)));
      ids.push(...receipts.map(({ eventId }) => eventId));
    },
  );
  return ids;
}

/** Lets one wait until so many events are acknowledged. */
function acknowledgements(bus) {
  let acked = 0;
  let goal = Number.POSITIVE_INFINITY;
  let reached = () => {};
  bus.on("event:acked", () => {
    acked++;
    if (acked >= goal) reached();
  });
  return (count) =>
    new Promise((resolve) => {
      goal = count;
      reached = resolve;
      if (acked >= count) resolve();
    });
}

/** Deliveries a second to handlers that do nothing, of events that are there before, or are dispatched meanwhile. */
function deliveries(areThere) {
  return withNewBus(SUBSCRIPTIONS, async (bus, names) => {
    const delivered = names.map(() => []);
    for (const [index, name] of names.entries()) {
      const handler = ({ id }) => void delivered[index].push(id);
      bus.subscription(name, { concurrency: CONCURRENCY }).handler(MailRequested, handler);
    }
    const acked = acknowledgements(bus);
    const stopping = new AbortController();
    const ids = areThere ? await dispatchMany(bus, FIRST + EVENTS) : [];
    const running = bus.run({ signal: stopping.signal });
    if (!areThere) ids.push(...(await dispatchMany(bus, FIRST)));
    await acked(SUBSCRIPTIONS * FIRST);
    const start = performance.now();
    if (!areThere) ids.push(...(await dispatchMany(bus, EVENTS)));
    await acked(SUBSCRIPTIONS * (FIRST + EVENTS));
    const took = performance.now() - start;
    stopping.abort();
    await running;
    for (const [index, name] of names.entries()) {
      assertExact(ids, delivered[index]);
      await assertStats(bus.subscription(name), { acked: FIRST + EVENTS });
    }
    return ((SUBSCRIPTIONS * EVENTS) / took) * 1000;
  });
}

/** The same in as few transactions as there can be: a hundred events, and a hundred deliveries of each subscription. */
function limitOfDeliveries(areThere) {
  const queues = queuesOf(SUBSCRIPTIONS);
  return withLimit({}, async (file) => {
    const ids = Array.from({ length: FIRST + EVENTS }, () => randomUUID());
    const put = (events) => {
      for (let i = 0; i < events; i += FILL) file.fanOut(envelope, ids.splice(0, FILL), queues);
    };
    const read = (bytes) => JSON.parse(bytes.toString());
    const turn = (events) => {
      for (let i = 0; i < events; i += CONCURRENCY) file.turn(CONCURRENCY, read, queues);
    };
    put(areThere ? FIRST + EVENTS : FIRST);
    turn(FIRST);
    const start = performance.now();
    if (!areThere) put(EVENTS);
    turn(EVENTS);
    return ((SUBSCRIPTIONS * EVENTS) / (performance.now() - start)) * 1000;
  });
}

let total = 0;
for (const [what, areThere] of [
  ["events that are there, to", true],
  ["from dispatch to", false],
]) {
  const rounds = await alternate(
    () => deliveries(areThere),
    () => limitOfDeliveries(areThere),
  );
  total += (rounds.length + 1) * SUBSCRIPTIONS * (FIRST + EVENTS);
  tellRatio(
    `${what} ${SUBSCRIPTIONS} subscriptions with concurrency ${CONCURRENCY}: rate`,
    undefined,
    rounds,
    perSecond,
  );
}
tellChecked(
  "each event is delivered to each subscription",
  "exactly once",
  `${number(total)} deliveries, by their ids`,
);
