"""Metrics for Prometheus: what they are called, how they are counted, and how they are served."""
