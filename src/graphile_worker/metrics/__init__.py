"""What workers count and what is read about the database, for statistics and for Prometheus."""
