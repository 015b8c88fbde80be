"""The option `hold`: how long short jobs are held."""

from __future__ import annotations

from datetime import timedelta

import pytest

from graphile_worker.cli.main import run_main
from graphile_worker.errors import ConfigError
from graphile_worker.values.options import WorkerOptions


def test_it_takes_seconds_or_a_timedelta() -> None:
    assert WorkerOptions().hold == 0.05
    assert WorkerOptions(hold=timedelta(milliseconds=20)).hold == 0.02
    assert WorkerOptions(hold=0).hold == 0.0


@pytest.mark.parametrize("value", [-1, 300.1, float("nan")])
def test_values_that_make_no_sense_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="hold: must be"):
        WorkerOptions(hold=value)


def test_config_shows_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRAPHILE_WORKER_HOLD", "0.2")
    assert run_main(["config"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["hold"])
    assert "0.2" in line
    assert "GRAPHILE_WORKER_HOLD" in line
