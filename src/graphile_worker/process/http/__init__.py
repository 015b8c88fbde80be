"""The worker's small HTTP server: `/livez`, `/readyz` and `/metrics`, for Kubernetes and Prometheus."""
