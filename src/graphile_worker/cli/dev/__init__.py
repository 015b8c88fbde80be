"""`graphile-worker dev`: a database, a worker that follows the code, and a view of both."""
