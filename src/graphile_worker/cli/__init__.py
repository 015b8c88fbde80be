"""The command `graphile-worker`: a thin face over the runner and the client."""
