// act.mjs - Act on SQLite.
//
//   append --path FILE --count N --callers C          store.commit, over 1,000 streams
//   drain --path FILE --count N --streams S --slots K --batch B
//                         N events, to one target (S = 1) or to a target for each of S streams; the time
//                         begins with correlating, its routing
//   priority --path FILE --count N --targets T --preferred P --which W
//   latency --path FILE --count N --rate R            commit and handler in one process: there is no
//                                                     other way to be woken on SQLite
//   idle --path FILE                                  resident memory with a reaction and nothing to do
import { act, dispose, InMemoryCache, state } from "@rotorsoft/act";
import { SqliteStore } from "@rotorsoft/act-sqlite";
import { z } from "zod";

import { callers, data, latency, memoryKb, must, nowUs, number, option, print, start, verb }
  from "./common.mjs";

const META = { correlation: "01936f00-0000-7000-8000-000000000000", causation: {} };
const Line = z.object({ sku: z.string(), count: z.number(), price: z.string() });
const Order = z.object({ order: z.number(), customer: z.string(), lines: z.array(Line),
                         currency: z.string(), note: z.string() });

function orders() {
  return state({ Order: z.object({ order: z.number() }) })
    .init(() => ({ order: 0 }))
    .emits({ OrderPlaced: Order })
    .patch({ OrderPlaced: ({ data: d }) => ({ order: d.order }) })
    .on({ place: Order }).emit((d) => ["OrderPlaced", d])
    .build();
}

async function open(path = option("path")) {
  const store = new SqliteStore({ url: `file:${path}` });
  await store.seed();
  return store;
}

function scoped(store) {
  return { scoped: { store, cache: new InMemoryCache() } };
}

function event(name, i) {
  return { name, data: data(i) };
}

// Events in commits of up to a thousand, over so many streams.
async function fill(store, name, count, streams) {
  const each = Math.ceil(count / streams);
  for (let s = 0; s < streams; s++) {
    for (let i = s * each; i < Math.min(count, (s + 1) * each); i += 1000) {
      const until = Math.min(count, (s + 1) * each, i + 1000);
      await store.commit(`order-${s}`,
        Array.from({ length: until - i }, (_, k) => event(name, i + k)), META);
    }
  }
}

// Two commits at once would be refused (SQLITE_BUSY): each waits for the one before.
let last = Promise.resolve();
function commit(store, stream, name, i) {
  last = last.then(() => store.commit(stream, [event(name, i)], META));
  return last;
}

async function append() {
  const many = number("callers", 1);
  const count = number("count");
  const store = await open();
  await callers(many, 10 * many, (i) => commit(store, `warm-${i}`, "OrderPlaced", i));
  const time = start();
  await callers(many, count, (i) => commit(store, `order-${i % 1000}`, "OrderPlaced", i));
  time.report(count);
}

// Correlates everything, then drains until nothing is left.
async function settle(app, handled, want, slots, batch) {
  let after = -1;
  for (;;) {
    const { last_id: last } = await app.correlate({ after, limit: 100000 });
    if (last === undefined || last <= after) {
      break;
    }
    after = last;
  }
  while (handled() < want) {
    const before = handled();
    await app.drain({ streamLimit: slots, eventLimit: batch, leaseMillis: 30000 });
    must(handled() > before, `stuck at ${handled()} of ${want}`);
  }
}

// A new Act looks for work when it begins; one that is there would only after a commit of its own.
async function react(path, { count, streams, slots, batch }) {
  const store = await open(path);
  let handled = 0;
  const app = act().withState(orders())
    .on("OrderPlaced").do(async function placed() { handled++; })
    .to(streams === 1 ? "only" : (e) => ({ target: `${e.stream}-target`, source: e.stream }))
    .build({ maxSubscribedStreams: 10000, ...scoped(store) });
  await fill(store, "OrderPlaced", count, streams);
  const time = start();
  await settle(app, () => handled, count, slots, batch);
  must(handled === count, `${handled} events were handled`);
  return time;
}

// The same work before, in another file: the process is warm.
async function drain() {
  const work = { count: number("count"), streams: number("streams", 1), slots: number("slots"),
                 batch: number("batch") };
  await react(`${option("path")}-warm`, work);
  (await react(option("path"), work)).report(work.count);
}

async function priority() {
  const count = number("count");
  const targets = number("targets");
  const which = number("which", 0);
  const preferred = number("preferred", 0);
  const handled = Array(targets).fill(0);
  const doneUs = Array(targets).fill(0);
  let all = 0;
  let time;
  const store = await open();
  let builder = act().withState(orders());
  for (let t = 0; t < targets; t++) {
    // A name of its own for each reaction.
    const handler = { [`target${t}`]: async () => {
      all++;
      if (++handled[t] === count) {
        doneUs[t] = time.wallUs();
      }
    } }[`target${t}`];
    builder = builder.on("OrderPlaced").do(handler)
      .to({ target: `target-${t}`, priority: t === which ? preferred : 0 });
  }
  const app = builder.build(scoped(store));
  await fill(store, "OrderPlaced", count, 1);
  time = start();
  await settle(app, () => all, count * targets, 5, 20);
  must(handled.every((n) => n === count), "not every event was handled once");
  time.report(count * targets, { preferred_us: doneUs[which], done_us: doneUs });
}

async function reacting(handled) {
  const store = await open();
  const app = act().withState(orders())
    .on("OrderPlaced").do(async function placed(e) { handled.set(e.data.order, nowUs()); }).to("only")
    .build({ settleDebounceMs: 0, ...scoped(store) });
  app.on("committed", () => app.settle());
  return app;
}

async function main() {
  if (verb === "append") {
    await append();
  } else if (verb === "drain") {
    await drain();
  } else if (verb === "priority") {
    await priority();
  } else if (verb === "latency") {
    const handled = new Map();
    const app = await reacting(handled);
    await latency({
      count: number("count"), rate: number("rate"), handled,
      send: (i) => app.do("place", { stream: "order-1", actor: { id: "1", name: "bench" } }, data(i)),
    });
  } else {
    await reacting(new Map());
    await new Promise((resolve) => setTimeout(resolve, 2000));
    print({ memory_kb: memoryKb() });
  }
}

await main();
await dispose()();
