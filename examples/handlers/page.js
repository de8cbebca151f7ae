#!/usr/bin/env node
// page.js - a handler for `exec:`: keeps a page per order that says where it stands.
//
// Safe to run twice: it sets, it does not add. The page is made from the event alone and replaces the
// one before in one step, so that the second time changes nothing, and nobody ever reads half a page.
//
//   PAGES=pages weir work --on '*' --source 'order-*' --to 'page-{stream}' --exec ./page.js --from start
'use strict';
const fs = require('node:fs/promises');
const path = require('node:path');
const readline = require('node:readline');

const pages = process.env.PAGES ?? 'pages';
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

async function handle({ event, target }) {
  await fs.mkdir(pages, { recursive: true });
  const page = path.join(pages, `${encodeURIComponent(event.stream)}.html`);
  const text = `<h1>${escape(event.stream)}</h1>\n<p>${escape(event.name)}, version ${event.version}</p>\n`;
  const draft = `${page}.${encodeURIComponent(target)}.new`;
  await fs.writeFile(draft, text);
  await fs.rename(draft, page);
  return { ok: true };
}

(async () => {
  // One line at a time: the answer to one is written before the next is taken.
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = await handle(JSON.parse(line));
    } catch (error) {
      answer = { retry: String(error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
})();
