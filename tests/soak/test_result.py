"""The result of a soak: it passes what stays, and fails what grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from scripts.soak.report import show_result
from scripts.soak.result import Comparison, Sample, judge, passed

MEGABYTE = 1024 * 1024
CALM = Sample(
    seconds=0,
    memory={"first": 60 * MEGABYTE, "second": 40 * MEGABYTE},
    descriptors={"first": 20, "second": 24},
    connections=16,
    sizes={"_private_jobs": 4 * MEGABYTE, "_private_tasks": 64 * 1024},
    dead_rows={"_private_jobs": 1000, "_private_tasks": 0},
    waiting=500,
)


def course(change: Callable[[Sample, int], Sample] = lambda sample, number: sample) -> list[Sample]:
    """Ninety samples, each made of the calm one and its number."""
    return [change(replace(CALM, seconds=10.0 * number), number) for number in range(90)]


def complaints(samples: list[Sample]) -> list[str]:
    return [comparison.what for comparison in judge(samples) if not comparison.is_fine]


def test_a_calm_course_passes() -> None:
    comparisons = judge(course())
    assert passed(comparisons)
    assert {comparison.what for comparison in comparisons} == {
        "memory of first",
        "memory of second",
        "connections",
        "descriptors of first",
        "descriptors of second",
        "size of _private_jobs",
        "size of _private_tasks",
    }


def test_what_grows_in_the_first_third_only_passes() -> None:
    def filling(sample: Sample, number: int) -> Sample:
        share = min(1.0, 0.2 + number / 30)
        return replace(
            sample,
            memory={name: int(share * size) for name, size in sample.memory.items()},
            descriptors={name: int(share * count) for name, count in sample.descriptors.items()},
            connections=int(share * sample.connections),
            sizes={name: int(share * size) for name, size in sample.sizes.items()},
        )

    assert complaints(course(filling)) == []


def test_memory_that_grows_slowly_in_one_of_two_workers_fails() -> None:
    def leaking(sample: Sample, number: int) -> Sample:
        return replace(sample, memory=dict(sample.memory) | {"second": 40 * MEGABYTE + number * 80 * 1024})

    assert complaints(course(leaking)) == ["memory of second"]


def test_memory_may_differ_by_up_to_five_per_cent() -> None:
    def larger(share: float) -> Callable[[Sample, int], Sample]:
        def change(sample: Sample, number: int) -> Sample:
            memory = int(60 * MEGABYTE * (1 + share * (number >= 60)))
            return replace(sample, memory=dict(sample.memory) | {"first": memory})

        return change

    assert complaints(course(larger(0.049))) == []
    assert complaints(course(larger(0.051))) == ["memory of first"]
    assert complaints(course(larger(-0.3))) == []


def test_connections_that_are_never_given_back_fail() -> None:
    def leaking(sample: Sample, number: int) -> Sample:
        return replace(sample, connections=16 + number // 12)

    assert complaints(course(leaking)) == ["connections"]


def test_a_connection_that_comes_and_goes_passes() -> None:
    def breathing(sample: Sample, number: int) -> Sample:
        return replace(sample, connections=16 + number % 2)

    assert complaints(course(breathing)) == []


def test_descriptors_that_stay_open_fail() -> None:
    def leaking(sample: Sample, number: int) -> Sample:
        return replace(sample, descriptors=dict(sample.descriptors) | {"first": 20 + number // 15})

    assert complaints(course(leaking)) == ["descriptors of first"]


def test_a_table_that_grows_fails_although_no_more_jobs_wait() -> None:
    def growing(sample: Sample, number: int) -> Sample:
        sizes = {name: size + number * 32 * 1024 for name, size in sample.sizes.items()}
        return replace(sample, sizes=sizes)

    assert complaints(course(growing)) == ["size of _private_jobs", "size of _private_tasks"]


def test_a_table_that_breathes_with_the_vacuum_passes() -> None:
    def breathing(sample: Sample, number: int) -> Sample:
        return replace(sample, sizes=dict(sample.sizes) | {"_private_jobs": (4 + number % 7) * MEGABYTE})

    assert complaints(course(breathing)) == []


def test_jobs_that_wait_may_need_room_and_others_may_not() -> None:
    def waiting(sample: Sample, number: int) -> Sample:
        sizes = {name: size + number * 100_000 for name, size in sample.sizes.items()}
        return replace(sample, waiting=500 + number * 200, sizes=sizes)

    assert complaints(course(waiting)) == ["size of _private_tasks"]


def test_what_is_kept_on_purpose_may_grow() -> None:
    def keeping(sample: Sample, number: int) -> Sample:
        kept = {"_private_py_errors_20300131": number * MEGABYTE, "_private_py_errors": number * MEGABYTE}
        return replace(sample, sizes=dict(sample.sizes) | kept)

    assert complaints(course(keeping)) == ["size of _private_py_errors"]


def test_a_few_samples_are_no_proof() -> None:
    with pytest.raises(ValueError, match="5 samples say nothing"):
        judge(course()[:5])


def test_the_result_marks_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(course(), [Comparison("memory of first", 100.0, 200.0, 105.0)], {"one": 3})
    shown = capsys.readouterr().out
    assert "! memory of first" in shown
    assert "100.0%" in shown
    assert "FAILED" in shown
    show_result(course(), judge(course()), {"one": 3})
    assert "PASSED" in capsys.readouterr().out
