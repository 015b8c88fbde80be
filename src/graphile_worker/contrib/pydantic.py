"""WorkerSettings: the options of a worker as settings of pydantic-settings.

The fields are the options of a worker as the configuration file has them. Environment variables, `.env` files
and files with secrets have the names and the notation of docs/configuration.md.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import FieldInfo, fields

try:
    from pydantic import BaseModel, Field, SecretStr, create_model, model_validator
    from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
except ModuleNotFoundError as error:
    if error.name not in ("pydantic", "pydantic_settings"):
        raise
    raise ImportError(
        "pydantic-settings is not installed: pip install 'graphile-worker[pydantic]'"
    ) from error

from ..config.resolve import mark_named
from ..config.settings import known_settings
from ..config.sources import PREFIX, from_environment
from ..errors import ConfigError
from ..values.option_groups import GROUPS, LocalQueueOptions, RefetchDelayOptions, durations, names_outside
from ..values.options import WorkerOptions

__all__ = ["LocalQueueSettings", "RefetchDelaySettings", "WorkerSettings"]


def _model(name: str, options: type[msgspec.Struct], base: type[Any], replaced: dict[str, Any]) -> Any:
    """A model with the fields of an options class. `replaced` has other types for some of them."""
    return create_model(name, __base__=base, __module__=__name__, **dict(_fields(options, replaced)))


def _fields(options: type[msgspec.Struct], replaced: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names, types and defaults; the options of a group as the environment has them."""
    hints, names = typing.get_type_hints(options), names_outside(options)
    for field in fields(options):
        if field.name in GROUPS and options is WorkerOptions:
            yield from _fields(GROUPS[field.name], {})
            continue
        kind = replaced.get(field.name, hints[field.name])
        if field.name in durations(options):
            kind = kind | timedelta
        yield names.get(field.name, field.name), (kind, _default(field))


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return Field(default_factory=field.default_factory)
    return Field() if field.required else Field(default=field.default)


RefetchDelaySettings = _model("RefetchDelaySettings", RefetchDelayOptions, BaseModel, {})
"""The options `local_queue.refetch_delay`."""
LocalQueueSettings = _model(
    "LocalQueueSettings", LocalQueueOptions, BaseModel, {"refetch_delay": RefetchDelaySettings | None}
)
"""The options `local_queue`."""

if TYPE_CHECKING:

    class _Options(BaseSettings):
        """Has a field for each option."""

        def __getattr__(self, name: str) -> Any: ...
else:

    class _Absent:
        """Hides an attribute of base classes."""

        def __get__(self, instance, owner):
            raise AttributeError

    class _Base(BaseSettings):
        """Settings whose field may be called `schema`, as a deprecated method of pydantic's models is."""

    _Base.schema = _Absent()  # else older versions of pydantic make the method the default
    _Options = _model(
        "_Options",
        WorkerOptions,
        _Base,
        {"connection_string": SecretStr | None, "local_queue": LocalQueueSettings | None},
    )


class WorkerSettings(_Options):
    """All options of a worker, read from the environment when an object is made.

    Subclass it to set `env_file` or another `env_prefix`, or make it a field of your own settings. Arguments
    win over the environment, the environment over `.env` files, and these over files in `secrets_dir`. The
    configuration file is not read.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        case_sensitive=True,
        extra="forbid",
        hide_input_in_errors=True,  # it may hold a password
    )

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

    def to_options(self) -> WorkerOptions:
        """For `run(options=...)`, `serve(options=...)` and clients."""
        values = {name: _plain(getattr(self, name)) for name in self.model_fields_set}
        mark_named(values, Path.cwd())
        return WorkerOptions.from_mapping(values)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.to_options()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        variables = (
            getattr(env_settings, "env_vars", {}),
            getattr(dotenv_settings, "env_vars", {}),
            _secrets(getattr(file_secret_settings, "secrets_dir", None)),
        )
        return (init_settings, *(_Variables(settings_cls, each) for each in variables))


class _Variables(PydanticBaseSettingsSource):
    """Options from environment variables, or from something that has the same names."""

    def __init__(self, settings_cls: type[BaseSettings], variables: Mapping[str, str | None]) -> None:
        super().__init__(settings_cls)
        self._variables = variables

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # all fields are read together

    def __call__(self) -> dict[str, Any]:
        prefix = self.config.get("env_prefix") or ""
        environ = {
            PREFIX + name.removeprefix(prefix).replace("__", "_"): text
            for name, text in self._variables.items()
            if name.startswith(prefix) and text
        }
        if url := self._variables.get("DATABASE_URL"):
            environ["DATABASE_URL"] = url
        return _nested(
            {
                name: value
                for name, value in from_environment(environ).values.items()
                if known_settings()[name].owner is WorkerOptions
            }
        )


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted name, as dictionaries in dictionaries."""
    whole: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        place = whole
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return whole


def _secrets(folders: Any) -> dict[str, str]:
    """Files in these folders as variables: the name in capitals, and the content."""
    if folders is None:
        return {}
    paths = [folders] if isinstance(folders, str | Path) else folders
    return {
        file.name.upper(): file.read_text(encoding="utf-8").strip()
        for folder in paths
        if Path(folder).is_dir()
        for file in Path(folder).iterdir()
        if file.is_file()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
