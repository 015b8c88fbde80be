"""A small shop: a web API that adds jobs, and a worker that runs them."""
