"""What became of jobs: the ends of kept jobs, their results, and the errors of every attempt."""
