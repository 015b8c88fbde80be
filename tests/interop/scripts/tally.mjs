// A Node worker that prints the id of each job when it ends, one in a line. The argument is JSON: {"task": name,
// "options": options of run()}. It prints "ready" first, runs until standard input ends, then stops gracefully.
import { once } from "node:events";

import { graphileWorker, shared } from "./library.mjs";

const { task, options } = JSON.parse(process.argv[2]);

const runner = await graphileWorker.run({
  ...shared,
  noHandleSignals: true,
  taskList: { [task]: (payload, { job }) => console.log(job.id) },
  ...options,
});
console.log("ready");
process.stdin.resume();
await once(process.stdin, "end");
await runner.stop();
await runner.promise.catch((error) => console.error(`error: ${error.message}`));
