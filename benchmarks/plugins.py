"""What plugins cost: the rate of running jobs without any, with OpenTelemetry, and with Prometheus.

    python benchmarks/plugins.py                                  on a temporary embedded server
    python benchmarks/plugins.py postgres:///scratch_database

Rounds take turns, so that other load affects all cases equally. Each case is compared with the plain one of
the same round; the result is the median. A scratch schema is made and removed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from graphile_worker import WorkerOptions
from graphile_worker.cli.bench.scratch import Jobs, Scratch, scratch_schema
from graphile_worker.cli.bench.throughput import Run, run_ready_jobs
from graphile_worker.cli.bench.workbench import Scale, Workbench
from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin
from graphile_worker.embedded import EmbeddedPostgres

TRACE = '{"flags": 0, "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}'
HERE = "benchmarks.plugins"


class Nowhere(SpanExporter):
    """Takes spans and drops them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Traced(OpenTelemetryPlugin):
    """OpenTelemetry with the SDK, a sampler and a batch processor; `share` of the traces are sampled."""

    share = 1.0

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(self.share))
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        super().__init__(tracer_provider=provider, meter_provider=meter_provider)


class Sampled(Traced):
    share = 0.01


class SampledWithMetrics(Sampled):
    def __init__(self) -> None:
        super().__init__(MeterProvider([InMemoryMetricReader()]))


class Case(NamedTuple):
    name: str
    plugins: tuple[str, ...] = ()
    is_traced: bool = False
    """Whether the jobs carry a context."""


CASES = (
    Case("no plugin"),
    Case("no plugin, jobs with a trace", is_traced=True),
    Case("OpenTelemetry, 1 % sampled", (f"{HERE}:Sampled",), is_traced=True),
    Case("OpenTelemetry, 1 % sampled, metrics", (f"{HERE}:SampledWithMetrics",), is_traced=True),
    Case("OpenTelemetry, all sampled", (f"{HERE}:Traced",), is_traced=True),
    Case("Prometheus", ("graphile_worker.contrib.prometheus:PrometheusPlugin",)),
)


async def run_case(bench: Workbench, url: str, case: Case) -> Run:
    await bench.scratch.clear()
    if not case.is_traced:
        return await run_ready_jobs(bench, bench.scale.jobs, Jobs(), plugins=list(case.plugins))
    fill = bench.scratch.fill

    async def fill_traced(jobs: Jobs, first: int, last: int) -> None:
        await fill(jobs, first, last)
        await add_traces(url, bench.scratch)

    bench.scratch.fill = fill_traced  # type: ignore[method-assign]
    try:
        return await run_ready_jobs(bench, bench.scale.jobs, Jobs(), plugins=list(case.plugins))
    finally:
        bench.scratch.fill = fill  # type: ignore[method-assign]


async def add_traces(url: str, scratch: Scratch) -> None:
    """Give all jobs a context. The payload stays a text that begins with it, as an add writes it."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            f"update {scratch.schema.quoted}._private_jobs set payload = "
            "('{\"_trace\":' || $1::text || ',' || substr(payload::text, 2))::json",
            TRACE,
        )
    finally:
        await connection.close()


async def measure(url: str, jobs: int, rounds: int, only: Sequence[str]) -> None:
    cases = [
        case for case in CASES if not only or case is CASES[0] or any(word in case.name for word in only)
    ]
    rates: dict[str, list[float]] = {case.name: [] for case in cases}
    options = WorkerOptions(connection_string=url, prepared_statements=True)
    async with scratch_schema(options) as scratch:
        chosen = options.with_values(schema=scratch.schema.name)
        bench = Workbench(scratch, chosen, Scale(jobs=jobs, rounds=rounds))
        for _ in range(rounds):
            for case in cases:
                rates[case.name].append((await run_case(bench, url, case)).rate)
    plain = rates[CASES[0].name]
    print(f"{'':<38}{'jobs/s':>10}{'of plain':>10}{'us/job':>8}")
    for name, found in rates.items():
        share = statistics.median(rate / base for rate, base in zip(found, plain, strict=True))
        more = statistics.median(1e6 / rate - 1e6 / base for rate, base in zip(found, plain, strict=True))
        print(f"{name:<38}{statistics.median(found):>10,.0f}{share:>10.2f}{more:>8.1f}")


@contextmanager
def database(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "postgres") as server:
        yield server.url()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of the cases")
    given = parser.parse_args()
    with database(given.url) as chosen_url:
        asyncio.run(measure(chosen_url, given.jobs, given.rounds, given.only))
