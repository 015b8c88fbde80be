// A Node worker whose tasks record each run in the table interop_runs. The argument is JSON:
// {"tasks": [names], "options": options of run()}. It prints "ready", runs until standard input ends,
// then stops gracefully.
//
// A payload says what its task does: {"pause": milliseconds}, {"fail": message}, {"add": [name, payload,
// spec]}. Of an array payload each item is looked at by itself, and the task returns one promise per item.
import { once } from "node:events";

import { graphileWorker, shared } from "./library.mjs";

const { tasks, options } = JSON.parse(process.argv[2]);

const START = `
  insert into public.interop_runs (worker, job_id, task, payload, queue, attempt, key, priority, flags)
  values ('node', $1, $2, $3, $4, $5, $6, $7, $8) returning id`;
const END = "update public.interop_runs set ended = clock_timestamp() where id = $1";

async function act(payload, helpers) {
  if (payload?.pause) await new Promise((resolve) => setTimeout(resolve, payload.pause));
  if (payload?.add) await helpers.addJob(...payload.add);
  if (payload?.fail) throw new Error(payload.fail);
}

async function record(payload, helpers) {
  const { job } = helpers;
  const queue = job.job_queue_id == null ? null : await helpers.getQueueName();
  const values = [job.id, job.task_identifier, JSON.stringify(payload), queue, job.attempts, job.key];
  const { rows } = await helpers.query(START, [...values, job.priority, JSON.stringify(job.flags)]);
  try {
    if (!Array.isArray(payload)) return await act(payload, helpers);
    const results = payload.map((item) => act(item, helpers));
    await Promise.allSettled(results);
    return results;
  } finally {
    await helpers.query(END, [rows[0].id]);
  }
}

const runner = await graphileWorker.run({
  ...shared,
  noHandleSignals: true,
  taskList: Object.fromEntries(tasks.map((name) => [name, record])),
  ...options,
});
console.log("ready");
process.stdin.resume();
await once(process.stdin, "end");
const complain = (error) => console.error(`error: ${error.message}`);
await runner.stop().catch(complain);
await runner.promise.catch(complain);
