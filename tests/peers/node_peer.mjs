// The Node peer; see protocol.py. The argument is the URL of the database.
import { EventEmitter } from "node:events";
import { createInterface } from "node:readline";

const { Logger, makeWorkerUtils, run } = await import(process.env.GRAPHILE_WORKER_LIBRARY);

const connectionString = process.argv[2];
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(`${level}: ${message}`);
});

const BEGIN = "select public.peer_begin('node', $1, $2, $3, $4, $5, $6, $7) as run";
const END = "select public.peer_end($1, $2)";
const GATE = "select public.peer_gate_is_open($1) as open";

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function isOpen(helpers, gate) {
  const { rows } = await helpers.query(GATE, [gate]);
  return rows[0].open;
}

async function act(payload, helpers) {
  if (payload?.pause) await pause(payload.pause);
  if (payload?.gate) while (!(await isOpen(helpers, payload.gate))) await pause(20);
  if (payload?.add) {
    const [task, newPayload, spec] = payload.add;
    await helpers.addJob(task, newPayload, jobSpec(spec));
  }
  const { attempts } = helpers.job;
  if (attempts < (payload?.fail_before ?? 0)) throw new Error(`attempt ${attempts} fails`);
}

async function record(payload, helpers) {
  const { id, task_identifier, job_queue_id, attempts, key } = helpers.job;
  const values = [process.pid, id, task_identifier, job_queue_id, attempts, key, JSON.stringify(payload)];
  const { rows } = await helpers.query(BEGIN, values);
  let outcome = "failed";
  try {
    if (!Array.isArray(payload)) {
      await act(payload, helpers);
      outcome = "done";
      return;
    }
    const results = payload.map((item) => act(item, helpers));
    const settled = await Promise.allSettled(results);
    if (settled.every(({ status }) => status === "fulfilled")) outcome = "done";
    return results;
  } finally {
    await helpers.query(END, [rows[0].run, outcome]);
  }
}

function jobSpec(given) {
  const { queue_name, run_at, max_attempts, job_key, job_key_mode, priority, attempts, flags } = given ?? {};
  return {
    queueName: queue_name,
    runAt: run_at && new Date(run_at),
    maxAttempts: max_attempts,
    jobKey: job_key,
    jobKeyMode: job_key_mode,
    priority,
    attempts,
    flags,
  };
}

const ids = (jobs) => jobs.map(({ id }) => Number(id));
let runner;
let opened; // on first use, because opening migrates
const utils = () => (opened ??= makeWorkerUtils({ connectionString, logger }));

const calls = {
  migrate: async () => (await utils()).migrate(),
  add: async (task, payload, spec) => Number((await (await utils()).addJob(task, payload, jobSpec(spec))).id),
  add_many: async (specs) =>
    ids(
      await (await utils()).addJobs(
        specs.map(([identifier, payload, spec]) => ({ identifier, payload, ...jobSpec(spec) })),
      ),
    ),
  remove: async (key) => {
    const statement = "select graphile_worker.remove_job($1)"; // Node has no function for it
    await (await utils()).withPgClient((client) => client.query(statement, [key]));
  },
  reschedule: async (jobIds, changes) =>
    ids(await (await utils()).rescheduleJobs(jobIds.map(String), jobSpec(changes))),
  give_up: async (jobIds, reason) =>
    ids(await (await utils()).permanentlyFailJobs(jobIds.map(String), reason)),
  work: async ({ concurrency = 4, poll = 100, local_queue, crontab, forbidden_flags }) => {
    const worker = local_queue
      ? { localQueue: { size: local_queue }, completeJobBatchDelay: 2, failJobBatchDelay: 2 }
      : {};
    const events = new EventEmitter();
    let pool;
    events.on("pool:create", ({ workerPool }) => (pool = workerPool.id));
    runner = await run({
      connectionString,
      logger,
      events,
      concurrency,
      pollInterval: poll,
      crontab: crontab ?? "",
      forbiddenFlags: forbidden_flags,
      taskList: { echo: record, tick: record, batch: record },
      preset: { worker },
    });
    return pool;
  },
};

const lines = createInterface({ input: process.stdin });
for await (const line of lines) {
  const [name, ...given] = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: (await calls[name](...given)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message ?? error) }));
  }
}
if (runner) {
  const complain = (error) => console.error(`error: ${error.message}`);
  await runner.stop().catch(complain);
  await runner.promise.catch(complain);
}
if (opened) await (await opened).release();
