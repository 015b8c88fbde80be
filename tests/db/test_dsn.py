"""Reading and masking connection strings."""

from __future__ import annotations

import pytest

from graphile_worker.db.dsn import Dsn, masked
from graphile_worker.errors import ConnectionConfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://user:secret@host/db", "postgres://user:***@host/db"),
        ("postgres://user:se@cr:et@host:1/db?a=b", "postgres://user:***@host:1/db?a=b"),
        ("postgres://host/db?user=u&password=secret&x=1", "postgres://host/db?user=u&password=***&x=1"),
        ("postgres:///db?sslpassword=secret", "postgres:///db?sslpassword=***"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
        (r"host=h password = 'se cr\'et' dbname=d", "host=h password = *** dbname=d"),
        ("postgres:///my_db", "postgres:///my_db"),
        ("postgres://user@host/db", "postgres://user@host/db"),
        ("postgres://user:se/cr@et@host/db", "postgres://user:***@host/db"),
        ("postgres://user:se?cr#et@host/db", "postgres://user:***@host/db"),
        (
            "postgres://user:secret@host/db?application_name=a@b",
            "postgres://user:***@host/db?application_name=a@b",
        ),
        ("postgres://host:5432/db?sslmode=require", "postgres://host:5432/db?sslmode=require"),
    ],
)
def test_passwords_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_urls_pass_through_untouched() -> None:
    for url in (
        "postgres:///my_db",
        "postgresql://user:p%40ss@one:1,two:2/db?target_session_attrs=primary&sslmode=require",
        "postgresql://%2Ftmp%2Fsocket/db",
        "postgresql://postgres@/postgres?host=%2Ftmp%2Fdata&port=5433",
    ):
        assert Dsn.parse(url).url == url


def test_pairs_become_a_url() -> None:
    dsn = Dsn.parse(r"host=localhost port=5433 dbname='my db' user=me password='a\'b c' sslmode=disable")
    assert dsn.url == (
        "postgresql://?host=localhost&port=5433&dbname=my%20db&user=me&password=a%27b%20c&sslmode=disable"
    )
    assert (dsn.target, dsn.database) == ("localhost:5433", "my db")
    assert "a%27b" not in repr(dsn)
    assert "password=***" in repr(dsn)


def test_what_only_libpq_knows_is_taken_out() -> None:
    dsn = Dsn.parse(
        "postgres://h/d?connect_timeout=5&keepalives_idle=7&gssencmode=disable&channel_binding=prefer"
        "&application_name=app&search_path=x"
    )
    assert dsn.url == "postgres://h/d?search_path=x"
    assert dsn.connect_timeout == 5
    assert dsn.keepalives == {"keepalives_idle": 7}
    assert dsn.application_name == "app"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("postgres://example.com/db", "example.com:5432"),
        ("postgres://user:pass@example.com:99/db", "example.com:99"),
        ("postgres://a:1,b:2/db", "a:1, b:2"),
        ("postgres://[::1]:7/db", "[::1]:7"),
        ("postgres:///db", "the local server's socket or localhost, port 5432"),
        ("postgres:///db?host=/tmp&port=6", "socket /tmp/.s.PGSQL.6"),
        ("postgres://%2Ftmp:6/db", "socket /tmp/.s.PGSQL.6"),
        ("host=a,b port=1,2", "a:1, b:2"),
    ],
)
def test_the_target_names_host_and_port(text: str, target: str) -> None:
    assert Dsn.parse(text).target == target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mysql://user:secret@host/db", "postgres:// or postgresql://, got one that starts with mysql://"),
        ("my_db", "expected a URL such as postgres://user@host/database"),
        ("", "the string is empty"),
        ("host=h secret", "expected a URL such as"),
        ("postgres://h/d?connect_timeout=soon", "connect_timeout is not a number: 'soon'"),
        ("postgres://h/d?keepalives_idle=x", "keepalives_idle is not a whole number: 'x'"),
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_secrets(text: str, message: str) -> None:
    with pytest.raises(ConnectionConfigError, match=message) as caught:
        Dsn.parse(text)
    assert "secret" not in str(caught.value)


def test_a_database_is_named_with_its_place_and_without_the_password() -> None:
    assert Dsn.parse("postgres://me:secret@db.example:6000/shop").name == "shop at db.example:6000"
