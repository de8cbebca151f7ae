// common.mjs - what the drivers of the peers share: arguments, events, clocks, and how they report.
//
// A driver prints one line of JSON, like the programs beside it: events, wall and processor time, or
// the median and the 99th percentile of a latency. It exits with an error unless all the work it was
// given was done.

const words = process.argv.slice(2);
export const verb = words[0];

export function option(name, otherwise) {
  const at = words.indexOf(`--${name}`);
  return at < 0 ? otherwise : words[at + 1];
}

export function number(name, otherwise) {
  return Number(option(name, otherwise));
}

// The same events as bench.c has, about 200 bytes.
export function data(i) {
  return {
    order: i,
    customer: `customer-${String(i % 100000).padStart(5, "0")}`,
    lines: [
      { sku: "KB-104-DE", count: 1, price: "49.90" },
      { sku: "MS-7-BLK", count: 2, price: "19.95" },
    ],
    currency: "EUR",
    note: "leave it at the door",
  };
}

// Monotonic, the same clock in all processes.
export function nowUs() {
  return Number(process.hrtime.bigint() / 1000n);
}

export function start() {
  const cpu = process.cpuUsage();
  const wall = nowUs();
  return {
    report(events, more = {}) {
      const used = process.cpuUsage(cpu);
      print({ events, wall_us: nowUs() - wall, cpu_us: used.user + used.system, ...more });
    },
    wallUs: () => nowUs() - wall,
  };
}

export function print(report) {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

export function must(condition, what) {
  if (!condition) {
    throw new Error(what);
  }
}

// So many callers, each with one call at a time, until `count` calls are made.
export async function callers(many, count, call) {
  let next = 0;
  const one = async (caller) => {
    while (next < count) {
      await call(next++, caller);
    }
  };
  await Promise.all(Array.from({ length: many }, (_, caller) => one(caller)));
}

export function percentiles(times, prefix = "") {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return { [`${prefix}p50_us`]: at(0.5), [`${prefix}p99_us`]: at(0.99), [`${prefix}max_us`]: at(1) };
}

const WARM = 50;

// Sends one job after the other at a rate, and asks the worker, another process, when it had each.
// sends(i): resolves when job i is committed. handled: job number to time, filled meanwhile.
export async function latency({ count, rate, send, handled }) {
  const called = [];
  const returned = [];
  const begun = nowUs();
  for (let i = 0; i < count + WARM; i++) {
    const due = begun + (i * 1e6) / rate;
    const ahead = due - nowUs();
    if (ahead > 1000) {
      await new Promise((resolve) => setTimeout(resolve, Math.floor(ahead / 1000)));
    }
    called.push(nowUs());
    await send(i);
    returned.push(nowUs());
  }
  const until = nowUs() + 60e6;
  while (handled.size < count + WARM) {
    must(nowUs() < until, "jobs were not handled");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const since = (from) =>
    from.map((t, i) => Math.max(0, handled.get(i) - t)).slice(WARM);
  print({ events: count, ...percentiles(since(returned)), ...percentiles(since(called), "whole_") });
}

// Starts this driver again as the worker of a latency; fills `handled` with what it tells.
export async function worker(handled) {
  const { fork } = await import("node:child_process");
  const child = fork(process.argv[1], ["worker", ...words.slice(1)], { stdio: "inherit" });
  await new Promise((resolve, reject) => {
    child.once("exit", () => reject(new Error("the worker ended")));
    child.on("message", (message) => {
      if (message === "ready") {
        resolve();
      } else {
        handled.set(message[0], message[1]);
      }
    });
  });
  return async () => {
    child.removeAllListeners("exit");
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await ended;
  };
}

export function memoryKb() {
  return Math.round(process.memoryUsage().rss / 1024);
}
