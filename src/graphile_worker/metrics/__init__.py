"""What workers did and what is waiting, in numbers: per minute in the database, and for Prometheus.

`worker` and what is above it import this package. Start in `catalogue`, which has every metric.
"""
