// boss.mjs - pg-boss. Its own fetch and complete, in so many loops; for the latency its worker, woken by
// notifications.
import pg from "pg";
import { PgBoss } from "pg-boss";

import { callers, data, latency, must, nowUs, number, option, print, start, verb, worker, memoryKb }
  from "./common.mjs";

const QUEUE = "jobs";
const workers = number("workers", 1);

function open(more = {}) {
  // Without its clockwork of maintenance: nothing but the work is in the time.
  const boss = new PgBoss({
    connectionString: option("url"), schema: "boss", supervise: false, schedule: false,
    max: Math.max(4, workers), ...more,
  });
  boss.on("error", (error) => console.error(error));
  return boss;
}

async function fill(boss, count) {
  for (let i = 0; i < count; i += 1000) {
    await boss.insert(QUEUE, Array.from({ length: Math.min(1000, count - i) },
      (_, k) => ({ data: data(i + k) })));
  }
}

async function sql(text) {
  const client = new pg.Client({ connectionString: option("url") });
  await client.connect();
  const result = await client.query(text);
  await client.end();
  return result;
}

async function fresh() {
  await sql("DROP SCHEMA IF EXISTS boss CASCADE");
  const boss = open({ useListenNotify: verb === "latency" });
  await boss.start();
  await boss.createQueue(QUEUE, { notify: verb === "latency" });
  return boss;
}

async function work(boss) {
  const count = number("count");
  const limit = number("limit", 1);
  await fill(boss, count);
  await sql("VACUUM ANALYZE");
  await sql("CHECKPOINT");
  const seen = new Set();
  const time = start();
  const loop = async () => {
    for (;;) {
      const jobs = await boss.fetch(QUEUE, { batchSize: limit });
      if (jobs.length === 0) {
        return;
      }
      jobs.forEach((job) => seen.add(job.data.order));
      await boss.complete(QUEUE, jobs.map((job) => job.id));
    }
  };
  await Promise.all(Array.from({ length: workers }, loop));
  must(seen.size === count, `${seen.size} jobs were handled`);
  time.report(count);
}

async function enqueue(boss) {
  const count = number("count");
  const batch = number("batch", 1);
  const time = start();
  await callers(1, count / batch, async (i) => {
    if (batch === 1) {
      await boss.send(QUEUE, data(i));
    } else {
      await boss.insert(QUEUE, Array.from({ length: batch },
        (_, k) => ({ data: data(i * batch + k) })));
    }
  });
  time.report(count);
}

async function main() {
  if (verb === "worker" || verb === "idle") {
    if (verb === "idle") {
      await (await fresh()).stop({ graceful: false });
    }
    const boss = open({ useListenNotify: true });
    await boss.start();
    // What came while it was at work has told it nothing: it looks again after a full batch.
    const options = { batchSize: 2, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
    await boss.work(QUEUE, options, async (jobs) => {
      jobs.forEach((job) => process.send([job.data.order, nowUs()]));
    });
    if (verb === "idle") {
      await new Promise((resolve) => setTimeout(resolve, 2000));
      print({ memory_kb: memoryKb() });
      await boss.stop({ graceful: false });
      return;
    }
    process.send("ready");
    process.on("SIGTERM", async () => {
      await boss.stop({ graceful: false });
      process.exit(0);
    });
    return;
  }
  const boss = await fresh();
  if (verb === "work") {
    await work(boss);
  } else if (verb === "enqueue") {
    await enqueue(boss);
  } else {
    const handled = new Map();
    const end = await worker(handled);
    await latency({
      count: number("count"), rate: number("rate"), handled,
      send: (i) => boss.send(QUEUE, data(i)),
    });
    await end();
  }
  await boss.stop({ graceful: false });
  await sql("DROP SCHEMA boss CASCADE");
}

await main();
