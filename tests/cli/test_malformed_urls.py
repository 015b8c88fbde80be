"""Malformed connection strings: no part of the password is shown, and there is no traceback."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from graphile_worker.database.connections.dsn import Dsn, masked
from graphile_worker.database.connections.open import connect, open_pool
from graphile_worker.errors import ConnectionConfigError, GraphileWorkerError
from support.cases import Cases
from support.command_line import Call

SECRET = "Qz7xKvW9jY4"
CLOSED = "127.0.0.1:1"
"""An address without a server, for strings that can be parsed."""

MALFORMED = [
    # where the password is
    f"postgres://u:{SECRET}@{CLOSED}/db",
    f"postgres://u:x[{SECRET}]y@{CLOSED}/db",
    f"postgres://u:[{SECRET}@{CLOSED}/db",
    f"postgres://u:{SECRET}]@{CLOSED}/db",
    f"postgres://u:{SECRET}/@{CLOSED}/db",
    f"postgres://u:/{SECRET}@{CLOSED}/db",
    f"postgres://u:a/{SECRET}@{CLOSED}/db",
    f"postgres://u:12/{SECRET}@{CLOSED}/db",
    f"postgres://u:{SECRET}?@{CLOSED}/db",
    f"postgres://u:a?{SECRET}@{CLOSED}/db",
    f"postgres://u:12?{SECRET}@{CLOSED}/db",
    f"postgres://u:12?x={SECRET}@{CLOSED}/db",
    f"postgres://u:12?{SECRET}=x@{CLOSED}/db",
    f"postgres://u:{SECRET}#@{CLOSED}/db",
    f"postgres://u:a#{SECRET}@{CLOSED}/db",
    f"postgres://u:12#{SECRET}@{CLOSED}/db",
    f"postgres://u:a@b/{SECRET}@{CLOSED}/db",
    f"postgres://u:a@{SECRET}@{CLOSED}/db",
    f"postgres://u:{SECRET}@b@{CLOSED}/db",
    f"postgres://u:{SECRET}:b@{CLOSED}/db",
    f"postgres://u:%ZZ{SECRET}@{CLOSED}/db",
    f"postgres://u:%{SECRET}%@{CLOSED}/db",
    f"postgres://u:%00{SECRET}@{CLOSED}/db",
    f"postgres://u:{SECRET}\n@{CLOSED}/db",
    f"postgres://u:{SECRET} {SECRET}@{CLOSED}/db",
    f"postgres://u:\\{SECRET}\\@{CLOSED}/db",
    f"postgres://u%3A{SECRET}@{CLOSED}/db",
    f"postgres://:{SECRET}@{CLOSED}/db",
    # no @, or nothing behind it
    f"postgres://u:{SECRET}:5432/db",
    f"postgres://u:{SECRET}",
    f"postgres://u:{SECRET}/db",
    f"postgres://u:{SECRET}@:99999/db",
    # hosts and ports
    f"postgres://u:{SECRET}@127.0.0.1:99999/db",
    f"postgres://u:{SECRET}@127.0.0.1:0/db",
    f"postgres://u:{SECRET}@127.0.0.1:port/db",
    f"postgres://u:{SECRET}@127.0.0.1:1:2/db",
    f"postgres://u:{SECRET}@127.0.0.1:-1/db",
    f"postgres://u:{SECRET}@[::1/db",
    f"postgres://u:{SECRET}@::1]/db",
    f"postgres://u:{SECRET}@[{SECRET}]/db",
    f"postgres://u:{SECRET}@{CLOSED},{CLOSED}:3/db",
    f"postgres://u:a@{CLOSED},u:{SECRET}@{CLOSED}/db",
    # slashes and schemes
    f"postgres:///u:{SECRET}@{CLOSED}/db",
    f"postgres:/u:{SECRET}@{CLOSED}/db",
    f"postgres:u:{SECRET}@{CLOSED}/db",
    f"postgres//u:{SECRET}@{CLOSED}/db",
    f"//u:{SECRET}@{CLOSED}/db",
    f"u:{SECRET}@{CLOSED}/db",
    f"u:{SECRET}@{CLOSED}",
    f"mysql://u:{SECRET}@{CLOSED}/db",
    f"{SECRET}://u@{CLOSED}/db",
    f"jdbc:postgresql://u:{SECRET}@{CLOSED}/db",
    f"postgresql+asyncpg://u:{SECRET}@{CLOSED}/db",
    f"postgres://postgres://u:{SECRET}@{CLOSED}/db",
    f'"postgres://u:{SECRET}@{CLOSED}/db"',
    f"DATABASE_URL=postgres://u:{SECRET}@{CLOSED}/db",
    # parameters
    f"postgres://{CLOSED}/db?password={SECRET}",
    f"postgres://{CLOSED}/db?PASSWORD={SECRET}",
    f"postgres://{CLOSED}/db?pass%77ord={SECRET}",
    f"postgres://{CLOSED}/db?passwd={SECRET}",
    f"postgres://{CLOSED}/db?user=u:{SECRET}",
    f"postgres://{CLOSED}/db?password=a&{SECRET}",
    f"postgres://{CLOSED}/db?password=a&{SECRET}=b",
    f"postgres://{CLOSED}/db?sslpassword={SECRET}&sslmode=nonsense",
    f"postgres://u:{SECRET}@{CLOSED}/db?connect_timeout=x",
    f"postgres://u:{SECRET}@{CLOSED}/db?ssl=perhaps",
    f"postgres://{CLOSED}/db?host=u:{SECRET}@h",
    f"postgres://{CLOSED}/db?dbname=postgres://u:{SECRET}@h/db",
    # pairs
    f"host=127.0.0.1 port=1 password=a b{SECRET}",
    f"host=127.0.0.1 port=1 password='a' b{SECRET}",
    f"host=127.0.0.1 port=1 password='{SECRET}",
    f"host=127.0.0.1 port=1 password={SECRET}'",
    f"host=127.0.0.1 port=1 password=a'{SECRET}'",
    f"host=127.0.0.1 port=1 password={SECRET}\\",
    f"host=127.0.0.1 port=1 password = {SECRET}",
    f"host=127.0.0.1 port=1 password: {SECRET}",
    f"host=127.0.0.1 port=1 password=a {SECRET}=b",
    f"host=127.0.0.1 port=99999 password={SECRET}",
    f"host=u:{SECRET}@127.0.0.1 port=1",
    f"dbname=postgres://u:{SECRET}@{CLOSED}/db",
    f"password={SECRET};host=127.0.0.1;port=1",
]


def hides(text: str) -> str:
    """The text, which does not contain any three consecutive characters of the password."""
    for at in range(len(SECRET) - 2):
        assert SECRET[at : at + 3] not in text, text
    return text


def test_the_list_is_long() -> None:
    assert len(set(MALFORMED)) >= 50


def test_reading_shows_nothing() -> None:
    with Cases() as cases:
        for string in MALFORMED:
            with cases(string):
                hides(masked(string))
                try:
                    dsn = Dsn.parse(string)
                except ConnectionConfigError as error:
                    hides("".join(traceback.format_exception(error)))
                else:
                    hides(f"{dsn!r} {dsn.target} {dsn.name} {dsn.database}")


async def test_opening_shows_nothing() -> None:
    with Cases() as cases:
        for string in MALFORMED:
            for opening in (open_pool, connect):
                with cases(opening.__name__, string):
                    with pytest.raises(GraphileWorkerError) as caught:
                        await opening(string)
                    hides(str(caught.value))
                    hides("".join(traceback.format_exception(caught.value)))


CONNECTING = (["list"], ["--once"], ["doctor"])


def test_commands_show_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each string with the commands that say most about it, and with one of the others in turn."""
    with Cases() as cases:
        for number, string in enumerate(MALFORMED):
            monkeypatch.setenv("DATABASE_URL", string)
            for arguments in (["config"], ["config", "--json"]):
                with cases(*arguments, string):
                    result = call(*arguments).check()
                    hides(result.out + result.err)
            for arguments in (["--log-level", "debug", "list"], CONNECTING[number % len(CONNECTING)]):
                with cases(*arguments, string):
                    result = call(*arguments)
                    assert result.status == 1
                    said = hides(result.out + result.err)
                    assert "debug" in arguments or "Traceback" not in said


def test_a_file_with_a_string_of_the_wrong_type_shows_nothing(call: Call, place: Path) -> None:
    value = json.dumps([f"postgres://u:{SECRET}@{CLOSED}/db"])
    (place / "graphile_worker.toml").write_text(f"connection_string = {value}\n")
    result = call("config")
    assert result.status == 1
    assert "connection_string: expected text, got list" in hides(result.out + result.err)


def test_a_string_without_its_flag_is_not_repeated(call: Call) -> None:
    with Cases() as cases:
        for string in MALFORMED:
            with cases(string):
                result = call(string)
                assert result.status == 2
                assert "to give a connection string, use -c" in hides(result.out + result.err)


@pytest.mark.parametrize("parameter", [f"{SECRET}=1", f"statement_timeout={SECRET}"])
async def test_the_server_may_not_quote_what_could_be_a_password(parameter: str, database_url: str) -> None:
    separator = "&" if "?" in database_url else "?"
    with pytest.raises(Exception, match="parameter") as caught:
        await connect(f"{database_url}{separator}{parameter}")
    if "statement_timeout" not in parameter:  # whose value is certainly no password
        hides("".join(traceback.format_exception(caught.value)))
