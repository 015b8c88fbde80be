"""Metrics for Prometheus. Needs the extra `metrics`."""

from __future__ import annotations

from ..metrics.database_metrics import DatabaseMetrics
from ..metrics.prometheus import PrometheusPlugin

__all__ = ["DatabaseMetrics", "PrometheusPlugin"]
