// graphile.mjs - graphile-worker. One at a time: so many workers, each takes a job and completes it. In
// hundreds: its local queue, and completions in batches, as its page on performance says.
import pg from "pg";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

import { callers, data, latency, must, nowUs, number, option, print, start, verb, worker, memoryKb }
  from "./common.mjs";

const url = option("url");
const logger = new Logger(() => () => {});

async function sql(text) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const result = await client.query(text);
  await client.end();
  return result;
}

async function fresh() {
  await sql("DROP SCHEMA IF EXISTS graphile_worker CASCADE");
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  return utils;
}

function runner(task, concurrency, worker = {}) {
  return run({
    connectionString: url, logger, noHandleSignals: true, taskList: { job: task },
    preset: { worker: { concurrentJobs: concurrency, maxPoolSize: concurrency + 2,
                        pollInterval: 1000, ...worker } },
  });
}

async function fill(utils, count) {
  for (let i = 0; i < count; i += 1000) {
    await utils.addJobs(Array.from({ length: Math.min(1000, count - i) },
      (_, k) => ({ identifier: "job", payload: data(i + k) })));
  }
}

async function work(utils) {
  const count = number("count");
  const limit = number("limit", 1);
  const workers = number("workers", 1);
  await fill(utils, count);
  await sql("VACUUM ANALYZE");
  await sql("CHECKPOINT");
  const seen = new Set();
  let finished;
  const all = new Promise((resolve) => { finished = resolve; });
  const batched = limit > 1 ? { localQueue: { size: limit }, completeJobBatchDelay: 0 } : {};
  const time = start();
  const running = await runner((payload) => { seen.add(payload.order); },
    limit > 1 ? limit : workers, batched);
  let completed = 0;
  running.events.on("job:complete", () => {
    if (++completed === count) {
      finished();
    }
  });
  await all;
  // Told as complete is not yet completed in the database: what is under way is waited for.
  while (Number((await sql("SELECT count(*) FROM graphile_worker.jobs")).rows[0].count) > 0) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  must(seen.size === count, `${seen.size} jobs were handled`);
  time.report(count);
  await running.stop();
}

async function enqueue(utils) {
  const count = number("count");
  const batch = number("batch", 1);
  const time = start();
  await callers(1, count / batch, async (i) => {
    if (batch === 1) {
      await utils.addJob("job", data(i));
    } else {
      await utils.addJobs(Array.from({ length: batch },
        (_, k) => ({ identifier: "job", payload: data(i * batch + k) })));
    }
  });
  time.report(count);
}

async function main() {
  if (verb === "worker") {
    const running = await runner((payload) => { process.send([payload.order, nowUs()]); }, 1);
    process.send("ready");
    process.on("SIGTERM", async () => {
      await running.stop();
      process.exit(0);
    });
    return;
  }
  const utils = await fresh();
  if (verb === "work") {
    await work(utils);
  } else if (verb === "enqueue") {
    await enqueue(utils);
  } else if (verb === "idle") {
    const running = await runner(() => {}, 1);
    await new Promise((resolve) => setTimeout(resolve, 2000));
    print({ memory_kb: memoryKb() });
    await running.stop();
  } else {
    const handled = new Map();
    const end = await worker(handled);
    await latency({
      count: number("count"), rate: number("rate"), handled,
      send: (i) => utils.addJob("job", data(i)),
    });
    await end();
  }
  await utils.release();
  await sql("DROP SCHEMA graphile_worker CASCADE");
}

await main();
