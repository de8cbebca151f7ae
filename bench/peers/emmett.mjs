// emmett.mjs - Emmett on PostgreSQL: appends without an expected version, over 1,000 streams.
import pg from "pg";
import { getPostgreSQLEventStore } from "@event-driven-io/emmett-postgresql";

import { callers, data, number, option, start } from "./common.mjs";

async function sql(text, url) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(text);
  await client.end();
}

// Its tables are all in "public": it gets a database.
const server = option("url");
const url = server.replace("///postgres", "///emmett");
await sql("DROP DATABASE IF EXISTS emmett", server);
await sql("CREATE DATABASE emmett", server);
const many = number("callers", 1);
const pool = new pg.Pool({ connectionString: url, max: many + 1 });
const store = getPostgreSQLEventStore(url, { connectionOptions: { pool } });
await store.schema.migrate();
await callers(many, 10 * many, (i) =>
  store.appendToStream(`warm-${i}`, [{ type: "OrderPlaced", data: data(i) }]));
await sql("VACUUM ANALYZE", url);
await sql("CHECKPOINT", url);
const count = number("count");
const time = start();
await callers(many, count, (i) =>
  store.appendToStream(`order-${i % 1000}`, [{ type: "OrderPlaced", data: data(i) }]));
time.report(count);
await store.close();
await pool.end();
await sql("DROP DATABASE emmett", server);
