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
import { inLanes, withNewQueue } from "./support/queue.mjs";
import { alternate } from "./support/rounds.mjs";
import { sized } from "./support/size.mjs";

const MailRequested = defineEvent("mail.requested");
/** Dispatches whose code the engine of JavaScript has yet to compile. */
const WARM_UP = sized(500, 10);
/** What is stored of an event; the text of an event has this length whatever its id. */
const envelope = Buffer.from(
  JSON.stringify({
    event_id: randomUUID(),
    correlation_id: randomUUID(),
    causation_id: null,
    event_type: MailRequested.type,
    event_schema: MailRequested.schema,
    event_created_at: "2026-01-02T03:04:05.678000+00:00",
    payload,
  }),
);

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
      return await work(bus, names);
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

/** How long a `putMany` takes of as many jobs as an event has deliveries, in milliseconds. */
function putsOfMany(jobs, batches) {
  const data = JSON.parse(envelope.toString());
  return withNewQueue({}, async (queue) => {
    const put = () => queue.putMany(Array.from({ length: jobs }, () => new EnqueueItem(data, { jobId: randomUUID() })));
    await timed(WARM_UP, put);
    const took = await timed(batches, put);
    await assertStats(queue, { ready: jobs * (WARM_UP + batches) });
    return took;
  });
}

for (const [subscriptions, events] of [
  [1, sized(5_000, 20)],
  [5, sized(3_000, 20)],
  [50, sized(500, 20)],
]) {
  const rounds = await alternate(
    () => dispatches(subscriptions, events),
    () => limitOfDispatches(subscriptions, events),
  );
  const whom = subscriptions === 1 ? "one subscription" : `${subscriptions} subscriptions`;
  tellRatio(`dispatch to ${whom}, one after the other: time`, undefined, rounds, time);
}

const FAN_OUT = 50;
const batches = sized(500, 20);
tellRatio(
  `dispatch to ${FAN_OUT} subscriptions beside putMany of ${FAN_OUT} jobs: time`,
  { atMost: 1.2 },
  await alternate(
    () => dispatches(FAN_OUT, batches),
    () => putsOfMany(FAN_OUT, batches),
  ),
  time,
  "for the jobs, each with a jobId",
);
tellChecked("each subscription has each event", "exactly", "by the counts, after each round");

const SUBSCRIPTIONS = 5;
const CONCURRENCY = 100;
const FILL = 100;
const LANES = 4;
const FIRST = sized(1_000, 100);
const EVENTS = sized(8_000, 200);

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
