"""How we reach PostgreSQL; the only place that imports the driver."""
