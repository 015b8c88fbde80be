"""Recurring jobs: when they run, what became of the last run, which workers have them."""
