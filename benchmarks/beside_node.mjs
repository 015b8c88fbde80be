// A Node worker that prints the number in each payload when the job starts. It prints "ready", and runs until standard
// input ends.
const { run, Logger } = await import(process.env.GRAPHILE_WORKER_LIBRARY);
const note = (payload) => console.log(payload.number);

await run({
  connectionString: process.env.DATABASE_URL,
  schema: process.env.GRAPHILE_WORKER_SCHEMA,
  noHandleSignals: true,
  concurrency: 5,
  logger: new Logger(() => () => {}),
  taskList: { of_node: note, of_both: note },
});
console.log("ready");
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
