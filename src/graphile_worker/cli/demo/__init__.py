"""The shop of `graphile-worker demo`: `tasks` has what it does, `shop` its load, workers and deploys."""
