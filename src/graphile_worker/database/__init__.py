"""Everything that talks to PostgreSQL, and nothing that decides when.

- `connections/` opens and adapts connections; the only place that imports the driver.
- `sql/` has all SQL as text.
- `statements/` runs it: one module per subject, functions that take a connection.
- `migrations/` installs and upgrades the schema.
- `embedded/` runs a PostgreSQL server for development and tests.

Everything above may import this package. Start in `statements/fetch` for a statement from end to end, or in
`connections/open` for how a connection comes about.
"""
