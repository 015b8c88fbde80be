"""The soak in figures: a line while it runs, a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from .result import Comparison, Sample, passed

ROWS = 12  # of the table over time; a sample every ten seconds would be two hundred


def write(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_progress(sample: Sample, seconds: float, added: int) -> None:
    """One line that replaces the last one on a terminal; elsewhere one a minute."""
    memory = ", ".join(_megabytes(bytes_) for bytes_ in sample.memory.values())
    line = (
        f"{sample.seconds:5.0f} of {seconds:.0f} s   {added:,} jobs added, {sample.waiting:,} there   "
        f"memory {memory}   {sample.connections} connections"
    )
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\x1b[K{line}")
        sys.stdout.flush()
    elif int(sample.seconds) % 60 < 10:
        write(line)


def show_result(
    samples: Sequence[Sample], comparisons: Sequence[Comparison], added: Mapping[str, int]
) -> None:
    """How it went over time, what was added, and what grew."""
    if sys.stdout.isatty():
        write()
    _show_course(samples)
    _show_added(added)
    _show_comparisons(comparisons)
    write()
    write("PASSED: nothing grew" if passed(comparisons) else "FAILED: see the lines marked with !")


def _show_course(samples: Sequence[Sample]) -> None:
    names = list(samples[-1].memory)
    heads = [f"{name} memory, files" for name in names]
    write()
    columns = "  ".join(f"{head:>22}" for head in heads)
    write(
        f"{'seconds':>8}  {columns}  {'connections':>11}  {'jobs':>7}  {'jobs table':>10}  {'dead rows':>9}"
    )
    step = max(1, -(-len(samples) // ROWS))
    for sample in samples[step - 1 :: step]:
        cells = "  ".join(
            f"{_megabytes(sample.memory[name]):>17} {sample.descriptors[name]:>4}" for name in names
        )
        size = _megabytes(sample.sizes["_private_jobs"])
        write(
            f"{sample.seconds:>8.0f}  {cells}  {sample.connections:>11}  {sample.waiting:>7,}  {size:>10}  "
            f"{sum(sample.dead_rows.values()):>9,}"
        )


def _show_added(added: Mapping[str, int]) -> None:
    write()
    kinds = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(added.items()))
    write(f"{sum(added.values()):,} jobs added: {kinds}")


def _show_comparisons(comparisons: Sequence[Comparison]) -> None:
    write()
    write(f"  {'':<40} {'second third':>14} {'last third':>14} {'change':>8} {'at most':>14}")
    for comparison in comparisons:
        mark = " " if comparison.is_fine else "!"
        figures = (comparison.second, comparison.last, comparison.limit)
        is_bytes = comparison.what.startswith(("memory", "size"))
        second, last, limit = (_kilobytes(value) if is_bytes else f"{value:.1f}" for value in figures)
        write(f"{mark} {comparison.what:<40} {second:>14} {last:>14} {comparison.change:>8.1%} {limit:>14}")


def _megabytes(count: float) -> str:
    return f"{count / 1024 / 1024:.1f} MB"


def _kilobytes(count: float) -> str:
    return f"{count / 1024:,.0f} kB"
