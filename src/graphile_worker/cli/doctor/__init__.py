"""`graphile-worker doctor`: looks at the connection, the schema, the jobs and the server, and advises."""
