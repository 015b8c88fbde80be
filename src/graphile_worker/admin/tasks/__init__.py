"""Tasks: what waits, runs, completes and fails of each."""
