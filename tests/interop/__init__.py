"""Interoperability with Graphile Worker for Node.js: the real package, on the same database."""
