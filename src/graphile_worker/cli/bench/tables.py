"""Prints the results of a benchmark as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..support.output import print_table
from .results import BenchReport, Latency, Rate

RATE = ("jobs/s", "lowest", "highest")


def _settings(options: Mapping[str, Any]) -> str:
    flat = {**options, **options.get("executors", {})}
    flat.pop("executors", None)
    return ", ".join(f"{name}={value:g}" for name, value in flat.items())


def print_report(report: BenchReport) -> None:
    """Print the environment, then a table for each part."""
    server = report.environment["postgresql"]
    click.echo(
        f"PostgreSQL {server['version']} (fsync {server['fsync']}, synchronous_commit "
        f"{server['synchronous_commit']}), {report.environment['cpus']} CPUs on this machine, "
        f"Python {report.environment['python']} with {report.environment['event_loop']}"
    )
    if report.throughput:
        _print_section(
            f"Throughput: trivial jobs, worker processes: {report.throughput[0].processes}",
            ("case", "options", "jobs", *RATE, "CPU us/job", "peak MB"),
            [
                (
                    result.name,
                    _settings(result.options),
                    result.rate.jobs,
                    *_rate(result.rate),
                    round(result.cpu_microseconds_per_job, 1),
                    round(result.peak_memory_mb, 1),
                )
                for result in report.throughput
            ],
        )
    if report.latency:
        _print_section(
            "Latency: milliseconds from adding a job to running its task, one job at a time",
            ("scenario", "samples", "average", "p50", "p99", "max"),
            [(result.name, result.samples, *_milliseconds(result)) for result in report.latency],
        )
    if report.adding:
        _print_section(
            "Adding: jobs added over one connection",
            ("method", "jobs", *RATE),
            [(result.name, result.rate.jobs, *_rate(result.rate)) for result in report.adding],
        )
    if report.growth:
        _print_section(
            f"Growth: {report.growth[0].rate.jobs:,} ready jobs beside a backlog that cannot run",
            ("backlog", "size", *RATE, "share"),
            [
                (result.backlog, result.size, *_rate(result.rate), round(result.share, 2))
                for result in report.growth
            ],
        )


def _print_section(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    click.echo(f"\n{title}")
    print_table(columns, rows)


def _milliseconds(result: Latency) -> tuple[float, ...]:
    return tuple(round(ms, 2) for ms in (result.average_ms, result.p50_ms, result.p99_ms, result.max_ms))


def _rate(rate: Rate) -> tuple[int, int, int]:
    return round(rate.per_second), round(rate.lowest), round(rate.highest)
