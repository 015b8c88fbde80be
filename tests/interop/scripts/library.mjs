// The Graphile Worker under test, and where it works: both come from the environment.
const { GRAPHILE_WORKER_LIBRARY, DATABASE_URL, GRAPHILE_WORKER_SCHEMA } = process.env;

export const graphileWorker = await import(GRAPHILE_WORKER_LIBRARY);

// Only what is worth a look is printed; the tests treat all of it as a complaint.
export const logger = new graphileWorker.Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(`${level}: ${message}`);
});

export const shared = { connectionString: DATABASE_URL, schema: GRAPHILE_WORKER_SCHEMA, logger };
