// Graphile Worker for Node, for `python -m benchmarks.peers`: one role per run, one line of JSON as the answer. See
// `benchmarks/peers/program.py`. The settings are the fastest of its documented ones that were tried.
const { run, makeWorkerUtils, Logger } = await import(process.env.GRAPHILE_WORKER_LIBRARY);

const IS_LEFT = "select exists (select from graphile_worker._private_jobs) as found";
const BATCH = 1000;
const WARM_UP = 20;
const PAUSE = 2;
const [role, given] = process.argv.slice(2);
const jobs = Number(given);
const connectionString = process.env.BENCH_DSN;
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const now = () => Number(process.hrtime.bigint()) / 1e6;

const preset = {
  worker: {
    connectionString,
    logger,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};
const used = () => {
  const usage = process.resourceUsage();
  return { cpu: (usage.userCPUTime + usage.systemCPUTime) / 1e6, memory: usage.maxRSS / 1024 };
};

async function client(body) {
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: 10, logger });
  const answer = await body(utils);
  await utils.release();
  return answer;
}

const roles = {
  setup: () =>
    client(async (utils) => {
      await utils.migrate();
      return {};
    }),
  add: () =>
    client(async (utils) => {
      const began = now();
      for (let id = 0; id < jobs; id++) await utils.addJob("bench", { id });
      return { jobs, seconds: (now() - began) / 1000 };
    }),
  fill: () =>
    client(async (utils) => {
      const began = now();
      for (let first = 0; first < jobs; first += BATCH) {
        const length = Math.min(BATCH, jobs - first);
        await utils.addJobs(Array.from({ length }, (_, at) => ({ identifier: "bench", payload: { id: first + at } })));
      }
      return { jobs, seconds: (now() - began) / 1000 };
    }),
  drain: () =>
    client(async (utils) => {
      let first = 0;
      let count = 0;
      let reached;
      const started = new Promise((resolve) => (reached = resolve));
      const bench = () => {
        first ||= now();
        if (++count === jobs) reached();
      };
      const before = used().cpu;
      await run({ preset, taskList: { bench }, noHandleSignals: true });
      await started;
      while ((await utils.withPgClient((pg) => pg.query(IS_LEFT))).rows[0].found) await sleep(PAUSE);
      const { cpu, memory } = used();
      return { jobs, seconds: (now() - first) / 1000, cpu: cpu - before, memory };
    }),
  latency: () =>
    client(async (utils) => {
      let started;
      const taskList = { bench: () => started(now()) };
      await run({ preset, taskList, noHandleSignals: true });
      const milliseconds = [];
      for (let id = -WARM_UP; id < jobs; id++) {
        const start = new Promise((resolve) => (started = resolve));
        const began = now();
        await utils.addJob("bench", { id });
        const waited = (await start) - began;
        if (id >= 0) milliseconds.push(waited);
        await sleep(PAUSE);
      }
      return { milliseconds };
    }),
};

console.log(JSON.stringify(await roles[role]()));
process.exit(0);
