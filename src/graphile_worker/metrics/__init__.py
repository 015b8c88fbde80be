"""What workers did and what is waiting, in numbers: per minute in the database, and for Prometheus.

`tasks` and what is above it may import this package. Start in `catalogue`, which has every metric.
"""
