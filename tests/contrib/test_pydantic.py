"""Settings by pydantic-settings have every option, and read what the documentation says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from graphile_worker import run_once
from graphile_worker.config import resolve
from graphile_worker.config.settings import known_settings
from graphile_worker.contrib.pydantic import WorkerSettings
from graphile_worker.errors import ConfigError
from graphile_worker.options import WorkerOptions
from support.working import Jobs

SAMPLES: dict[type, str] = {
    bool: "no",
    int: "4",
    float: "2.5",
    str: "shop",
    dict: "video=2",
    list: "sentry,otel",
}
SPECIAL = {
    "connection_string": "postgresql://ada:secret@database/connections/shop",
    "history": "all",
    "recovery_grace": "60",
    "max_reset_locked_interval": "900",
    "executors": "process.processes=4",
    "plugin_options": "sentry.capture=all",
}
"""Variables of options that take only certain values."""


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", *(setting.variable for setting in known_settings().values())):
        monkeypatch.delenv(name, raising=False)


def test_every_variable_means_what_it_means_to_a_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {
        setting.variable: SPECIAL.get(setting.name, SAMPLES[setting.kind])
        for setting in known_settings().values()
        if setting.owner is WorkerOptions
    }
    for name, text in {**variables, "GRAPHILE_WORKER_LOG_LEVEL": "debug", "GRAPHILE_WORKER_APP": ""}.items():
        monkeypatch.setenv(name, text)
    settings = WorkerSettings()
    monkeypatch.chdir(tmp_path)
    expected = resolve({}, variables, tmp_path)[0]
    assert settings.to_options() == expected
    assert settings.model_fields_set == {
        name.partition(".")[0] for name, setting in known_settings().items() if setting.owner is WorkerOptions
    }
    assert "secret" not in repr(settings)
    assert (settings.concurrency, settings.local_queue.refetch_delay.threshold) == (4, 4)


def test_without_anything_there_are_defaults() -> None:
    assert WorkerSettings().to_options() == WorkerOptions()
    assert {name: getattr(WorkerSettings(), name) for name in ("grace", "lanes", "schema")} == {
        "grace": 25.0, "lanes": {}, "schema": "graphile_worker",
    }  # fmt: skip


class Shop(WorkerSettings):
    model_config = SettingsConfigDict(env_prefix="SHOP_")


class Everything(BaseSettings):
    """Settings of an application, with those of its worker among them."""

    model_config = SettingsConfigDict(env_nested_delimiter="__")
    debug: bool = False
    worker: WorkerSettings = Field(default_factory=WorkerSettings)


def test_sources_and_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dotenv, secrets = tmp_path / ".env", tmp_path / "secrets"
    secrets.mkdir()
    dotenv.write_text("SHOP_CONCURRENCY=5\nSHOP_GRACE=7\nSHOP_SCHEMA=from_file\nOTHER=1\n")
    (secrets / "shop_connection_string").write_text("postgresql://shop:secret@database/connections/shop\n")
    (secrets / "shop_schema").write_text("from_secrets")
    monkeypatch.setenv("SHOP_CONCURRENCY", "6")
    monkeypatch.setenv("SHOP_LOCAL_QUEUE__SIZE", "100")
    monkeypatch.setenv("GRAPHILE_WORKER_MAX_POOL_SIZE", "not read")
    monkeypatch.setenv("DATABASE_URL", "postgresql://ignored/")
    read: Any = {"_env_file": dotenv, "_secrets_dir": secrets, "poll_interval": timedelta(minutes=1)}
    options = Shop(**read).to_options()
    assert (options.concurrency, options.grace, options.schema) == (6, 7.0, "from_file")
    assert options.connection_string == "postgresql://ignored/"
    assert (options.poll_interval, options.max_pool_size) == (60.0, 10)
    assert options.local_queue is not None
    assert options.local_queue.size == 100
    monkeypatch.delenv("DATABASE_URL")
    assert Shop(**read).to_options().connection_string == "postgresql://shop:secret@database/connections/shop"

    monkeypatch.setenv("GRAPHILE_WORKER_MAX_POOL_SIZE", "12")
    monkeypatch.setenv("DEBUG", "1")
    whole = Everything()
    assert (whole.debug, whole.worker.to_options().max_pool_size) == (True, 12)
    monkeypatch.setenv("WORKER__CONCURRENCY", "3")
    assert Everything().worker.to_options().concurrency == 3
    assert Everything(worker={"concurrency": 8}).worker.to_options().concurrency == 8  # type: ignore[arg-type]


def test_errors_name_the_option_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="concurrency: must be at least 1, got 0") as caught:
        WorkerSettings(concurrency=0, connection_string="postgresql://ada:secret@db")
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError, match="concurency"):
        WorkerSettings(concurency=2)
    monkeypatch.setenv("GRAPHILE_WORKER_CONCURENCY", "2")
    with pytest.raises(ConfigError, match="did you mean GRAPHILE_WORKER_CONCURRENCY"):
        WorkerSettings()


async def test_a_worker_runs_with_them(database_url: str, jobs: Jobs) -> None:
    got: list[str] = []

    async def greet(payload: dict[str, str]) -> None:
        got.append(payload["name"])

    await jobs.add("greet", {"name": "Ada"})
    settings = WorkerSettings(connection_string=database_url, concurrency=2)
    await run_once(task_list=[greet], options=settings.to_options())
    assert got == ["Ada"]
