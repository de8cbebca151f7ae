// actpg.mjs - Act's adapter for PostgreSQL: appends without an expected version, over 1,000 streams.
import { PostgresStore } from "@rotorsoft/act-pg";

import { callers, data, number, option, start } from "./common.mjs";

const url = new URL(option("url").replace("postgres:///", "postgres://localhost/"));
const store = new PostgresStore({
  host: url.searchParams.get("host"), user: url.searchParams.get("user"),
  database: url.pathname.slice(1), schema: "act", table: "events",
});
const meta = { correlation: "01936f00-0000-7000-8000-000000000000", causation: {} };
await store.drop();
await store.seed();
const count = number("count");
const many = number("callers", 1);
const append = (stream, i) => store.commit(stream, [{ name: "OrderPlaced", data: data(i) }], meta);
await callers(many, 10 * many, (i) => append(`warm-${i}`, i));
const time = start();
await callers(many, count, (i) => append(`order-${i % 1000}`, i));
time.report(count);
await store.drop();
await store.dispose();
