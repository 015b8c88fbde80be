// Reads [[name, ...arguments], ...] as JSON from standard input, calls these functions of Node's library
// one after the other and prints the list of their results as JSON.
import { text } from "node:stream/consumers";

import { graphileWorker, logger, shared } from "./library.mjs";

const ADHOC = ["quickAddJob", "addJobAdhoc"]; // these open and close a connection of their own

// JSON has no dates, Node's functions want them: every member named runAt becomes one.
const withDates = (key, value) => (key === "runAt" && typeof value === "string" ? new Date(value) : value);

const calls = JSON.parse(await text(process.stdin), withDates);
const utils = await graphileWorker.makeWorkerUtils(shared);
const results = [];
for (const [name, ...given] of calls) {
  const result = ADHOC.includes(name)
    ? await graphileWorker[name](shared, ...given)
    : await utils[name](...given);
  results.push(result ?? null);
}
await utils.release();
console.log(JSON.stringify(results));
