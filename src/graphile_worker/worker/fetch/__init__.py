"""Fetching: which statement to send, when, and who gets the jobs. Start in `source`, then `fetcher`."""
