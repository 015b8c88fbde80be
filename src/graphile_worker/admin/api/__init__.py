"""Handlers of the JSON API, one module per subject."""
