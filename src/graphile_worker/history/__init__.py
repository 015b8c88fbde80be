"""What became of jobs: kept jobs, their results, and the errors of every attempt."""
