"""Failures: error groups, what their jobs have in common, and what can be done about them."""
