"""Charts: well-formed SVG, whatever is drawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
from markupsafe import Markup

from graphile_worker.admin import charts
from graphile_worker.admin.answers import Marker
from graphile_worker.admin.charts import ChartSeries
from graphile_worker.admin.charts.geometry import NARROWEST, place, time_ticks, value_ticks
from graphile_worker.admin.tasks.series import (
    RANGES,
    WRITTEN_WITHIN,
    BacklogSeries,
    Range,
    TaskSeries,
    Timeline,
)

START = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
ATTACK = """</svg><script>alert(1)</script>"'&{{7*7}}{0}%s"""


def drawn(markup: Markup) -> ElementTree.Element:
    """The markup, read as XML; it has no style attribute, which the content security policy would refuse."""
    found = ElementTree.fromstring(f"<div>{markup}</div>")
    assert not any("style" in element.attrib for element in found.iter())
    return found


def test_a_time_chart_has_a_text_alternative_and_values_for_the_pointer() -> None:
    series = [ChartSeries("completed", [1, 2, None, 4]), ChartSeries("failed", [0, 0, 3, 1], "c-fail")]
    chart = drawn(charts.time_chart(series, start=START, step=60, label="Jobs per minute", unit="/min"))
    svg = chart.find(".//svg[@role='img']")
    assert svg is not None
    assert svg.get("aria-label") == "Jobs per minute"
    lines = [path for path in chart.iter("path") if path.get("data-name")]
    values = {line.get("data-name"): line.get("data-values") for line in lines}
    assert values == {"completed": "1,2,,4", "failed": "0,0,3,1"}
    assert [cell.text for cell in chart.findall(".//details//td")][:3] == ["2026-03-28 22:00", "1", "0"]


@pytest.mark.parametrize("wanted", RANGES.values(), ids=RANGES)
def test_the_last_step_is_over(wanted: Range) -> None:
    """However far the current step is; workers need some seconds to write what they counted."""
    day = datetime(2026, 3, 28, tzinfo=UTC)
    for seconds in (0, 1, 19, 21, 299, 301, 3599, 3600, 3661, 86_399):
        now = day + timedelta(seconds=seconds)
        end = wanted.start(now) + timedelta(seconds=wanted.seconds)
        written = now - timedelta(seconds=WRITTEN_WITHIN)
        assert end <= written < end + timedelta(seconds=wanted.step)
        assert wanted.start(now, is_whole=False) + timedelta(seconds=wanted.seconds) > now


def timeline_of(deleted: list[float | None], completed: list[float]) -> Timeline:
    wanted, unknown = Range("15m", "", 60, len(completed)), [None] * len(completed)
    found = Timeline(wanted, START, START)
    found.tasks["a"] = TaskSeries(completed, [0.0] * len(completed), [0.0] * len(completed))
    found.backlog = BacklogSeries([0.0] * len(completed), list(unknown), list(unknown), deleted)
    return found


def test_other_runtimes_are_shown_if_there_are_any() -> None:
    """Samples and statistics may put the same jobs into steps beside each other."""
    assert timeline_of([100, 0, 300, 0, 200], [0, 100, 0, 300, 200]).others is None
    assert timeline_of([None, 400, 400], [100, 100, 100]).others == [None, 300, 300]


def test_a_stack_has_gaps_where_values_are_unknown() -> None:
    series = [ChartSeries("ready", [5, 5, None, None, 5, 5])]
    for stacked in (True, False):
        chart = drawn(charts.time_chart(series, start=START, step=60, label="Ready", stacked=stacked))
        for path in chart.iter("path"):
            assert (path.get("d") or "").count("M") == 2, path.attrib
            assert "400.0" not in (path.get("d") or "")  # where the third value would be


def test_every_chart_that_stands_alone_has_an_axis() -> None:
    counts = [0] * 28
    counts[10], counts[13] = 5, 420
    bars = charts.time_chart([ChartSeries("a", [0, 3, 420])], start=START, step=3600, label="a", is_bars=True)
    histogram = charts.histogram(counts, label="Run times")
    for chart in (bars, histogram):
        texts = [text.text for text in drawn(chart).iter("text")]
        assert {"0", "200", "400", "600"} <= set(texts)
    assert "22:00" in [text.text for text in drawn(bars).iter("text")]
    spark = drawn(charts.sparkline([0, 420, None], label="a", has_axis=True))
    assert [each.text for each in spark.iter("i")] == ["420", "0"]


def test_bars_are_as_wide_as_their_steps() -> None:
    bars = charts.time_chart([ChartSeries("a", [1, 0, 2, 4])], start=START, step=60, label="a", is_bars=True)
    rects = [rect for rect in drawn(bars).iter("rect") if rect.get("class") == "fill c1"]
    assert [float(rect.get("x", "")) for rect in rects] == [0, 500, 750]
    assert [float(rect.get("width", "")) for rect in rects] == [200] * 3


@pytest.mark.parametrize("values", [[], [0], [None], [5], [None, None], [0.0, 1e12], [float("inf"), 1.0]])
def test_any_values_can_be_drawn(values: list[float | None]) -> None:
    series = [ChartSeries("a", values)]
    for stacked in (True, False):
        drawn(charts.time_chart(series, start=START, step=60, label="a", stacked=stacked))
    drawn(charts.time_chart(series, start=START, step=60, label="a", is_bars=True))
    drawn(charts.sparkline(values, label="a", has_axis=True))
    drawn(charts.bars(values, label="a"))


def test_texts_are_escaped() -> None:
    series = [ChartSeries(ATTACK, [1, 2])]
    markers = [Marker(START, "deploy", ATTACK)]
    whole = charts.time_chart(series, start=START, step=60, label=ATTACK, unit=ATTACK, markers=markers)
    found = drawn(whole)
    assert "<script" not in whole
    assert found.find(".//li").text == ATTACK  # type: ignore[union-attr]
    drawn(charts.sparkline([1, 2], label=ATTACK))


def test_marker_texts_do_not_collide() -> None:
    markers = [
        Marker(START + timedelta(minutes=minute), "action", f"event number {minute}")
        for minute in (0, 3, 5, 9, 30, 31, 58, 59, 60)
    ]
    placed = place(markers, START.timestamp(), 3600)
    assert sum(len(each.texts) for each in placed) == len(markers)
    for each in placed:
        begin, end = each.span
        assert 0 <= begin <= end <= NARROWEST or not each.label
        for other in placed:
            if each.label and other is not each:
                assert other.row > each.row or not begin < other.at < end
                assert other.row != each.row or other.span[1] <= begin or end <= other.span[0]


def test_a_few_markers_all_have_texts() -> None:
    markers = [
        Marker(START + timedelta(minutes=33), "deploy", "1.4.2 was deployed"),
        Marker(START + timedelta(minutes=44), "action", "retry job 48213420 by ada"),
        Marker(START + timedelta(minutes=52), "pause", "pause queue invoices by ada"),
        Marker(START + timedelta(minutes=58), "restart", "the server was restarted"),
    ]
    assert all(each.label for each in place(markers, START.timestamp(), 3600))


def test_among_many_markers_a_deploy_has_its_text() -> None:
    many = [Marker(START + timedelta(minutes=minute), "action", f"event {minute}") for minute in range(60)]
    placed = place([*many, Marker(START + timedelta(minutes=30), "deploy", "2.0")], START.timestamp(), 3600)
    (deploy,) = (each for each in placed if each.kind == "deploy")
    assert deploy.label.startswith("2.0")
    assert sum(bool(each.label) for each in placed) > 3


def test_markers_before_the_period_are_left_out_and_later_ones_are_at_the_edge() -> None:
    assert place([Marker(START - timedelta(seconds=1), "action", "early")], START.timestamp(), 60) == []
    (late,) = place([Marker(START + timedelta(hours=1), "action", "late")], START.timestamp(), 60)
    assert (late.share, late.texts) == (1.0, ("late",))


def test_days_begin_at_midnight_of_the_zone_also_when_clocks_change() -> None:
    zone = ZoneInfo("Europe/Berlin")
    ticks = time_ticks(START, START + timedelta(days=4), zone)
    assert [label for _, label in ticks] == ["Mar 29", "Mar 30", "Mar 31", "Apr 1", "Apr 2"]
    assert [moment.astimezone(zone).hour for moment, _ in ticks] == [0] * 5


@pytest.mark.parametrize(
    ("period", "expected"),
    [(timedelta(minutes=15), 5), (timedelta(hours=1), 6), (timedelta(hours=48), 4), (timedelta(days=90), 3)],
)
def test_a_period_has_few_ticks(period: timedelta, expected: int) -> None:
    assert expected <= len(time_ticks(START, START + period, UTC)) <= 7


@pytest.mark.parametrize(
    ("largest", "ticks"), [(0, [0, 1]), (3, [0, 1, 2, 3]), (420, [0, 200, 400, 600]), (8, [0, 2, 4, 6, 8])]
)
def test_value_ticks_are_round(largest: float, ticks: list[float]) -> None:
    assert value_ticks(largest) == ticks


def test_durations_have_round_ticks() -> None:
    assert value_ticks(250, is_duration=True) == [0, 120, 240, 360]


def test_slots_show_what_is_busy() -> None:
    found = drawn(charts.slots(4, 2, long=1))
    assert [cell.get("class") for cell in found.iter("i")] == ["long", "on", "free", "free"]
    many = drawn(charts.slots(100, 1))
    assert [cell.get("class") for cell in many.iter("i")].count("on") == 1
    for total, busy, long, shown in ((8, 7, 0, "on " * 5 + "free"), (20, 6, 6, "long long " + "free " * 4)):
        cells = drawn(charts.slots(total, busy, long=long, most=6))
        assert [cell.get("class") for cell in cells.iter("i")] == shown.split()


def test_a_histogram_names_its_times() -> None:
    counts = [0] * 28
    counts[10], counts[13] = 5, 20
    found = drawn(charts.histogram(counts, label="Run times"))
    assert [text.text for text in found.findall(".//g[@class='axis']/text")] == [
        "62 ms",
        "125 ms",
        "250 ms",
        "500 ms",
    ]
    assert charts.histogram([0, 0], label="none") == ""
