"""Metrics for Prometheus. Needs the extra `metrics`."""

from __future__ import annotations

from ..metrics.plugin import PrometheusPlugin

__all__ = ["PrometheusPlugin"]
