"""Reading and masking connection strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphile_worker.database.connections.connection_text import NOT_SHOWN
from graphile_worker.database.connections.dsn import Dsn, masked
from graphile_worker.errors import ConnectionConfigError
from support.cases import looped
from support.properties import examples


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)


@looped(
    ("text", "shown"),
    [
        ("postgres://user:secret@host/db", "postgres://user:***@host/db"),
        ("postgres://user:se@cr:et@host:1/db?a=b", "postgres://user:***@host:1/db?***"),
        (
            "postgres://host/db?user=u&password=secret&sslmode=require",
            "postgres://host/db?user=u&password=***&sslmode=require",
        ),
        ("postgres://user:x[secret]y@host/db", "postgres://user:***@host/db"),
        ("postgres://user%3Asecret@host/db", "postgres://***@host/db"),
        ("my_db", "postgresql:///my_db"),
        ("host=h application_name='my app' passwort=secret", "host=h application_name='my app' ***"),
        ("postgres:///db?sslpassword=secret", "postgres:///db?sslpassword=***"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
        (r"host=h password = 'se cr\'et' dbname=d", "host=h password=*** dbname=d"),
        ("postgres:///my_db", "postgres:///my_db"),
        ("postgres://user@host/db", "postgres://user@host/db"),
        ("postgres://user:se/cr@et@host/db", NOT_SHOWN),
        ("postgres://user:se?cr#et@host/db", NOT_SHOWN),
        ("postgres://user:secret:5432/db", NOT_SHOWN),
        ("host=h password=se cret", NOT_SHOWN),
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


@looped(
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


@looped(
    ("text", "message"),
    [
        ("mysql://user:secret@host/db", "postgres:// or postgresql://, got one that starts with mysql://"),
        ("mysql+pymysql://user:secret@host/db", r"postgresql://, got one that starts with mysql\+$"),
        ("sqlite:///shop.db", "postgresql://, got one that starts with sqlite://$"),
        ("secret+asyncpg://host/db", "postgres:// or postgresql://$"),
        ("my db", "expected a URL such as postgres://user@host/database"),
        ("user:secret@host/db", "expected a URL such as"),
        ("localhost", "expected a URL such as"),
        ("db.example.com", "expected a URL such as"),
        ("postgres://h:99999/d", "a port is a number from 1 to 65535"),
        ("host=h port=0", "a port is a number from 1 to 65535"),
        ("postgres://h/d?ssl=maybe", "ssl must be true or false, or one of disable, allow, prefer, require"),
        ("", "the string is empty"),
        ("host=h secret", "expected a URL such as"),
        ("postgres://h/d?connect_timeout=soon", "connect_timeout is not a number$"),
        ("postgres://h/d?keepalives_idle=x", "keepalives_idle is not a whole number$"),
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_secrets(text: str, message: str) -> None:
    with pytest.raises(ConnectionConfigError, match=message) as caught:
        Dsn.parse(text)
    assert "secret" not in str(caught.value)


def test_a_database_is_named_with_its_place_and_without_the_password() -> None:
    assert Dsn.parse("postgres://me:secret@db.example:6000/shop").name == "shop at db.example:6000"


@looped(
    ("text", "url", "verifies_server"),
    [
        ("postgres://h/d?ssl=true", "postgres://h/d", True),
        ("postgres://h/d?ssl=1&search_path=x", "postgres://h/d?search_path=x", True),
        ("my_db?ssl=true", "postgresql:///my_db", True),
        ("host=h ssl=true", "postgresql://?host=h", True),
        ("postgres://h/d?ssl=false", "postgres://h/d?sslmode=disable", False),
        ("postgres://h/d?ssl=0", "postgres://h/d?sslmode=disable", False),
        ("postgres://h/d?ssl=true&sslmode=require", "postgres://h/d?sslmode=require", False),
        ("postgres://h/d?sslmode=no-verify", "postgres://h/d?sslmode=require", False),
        (
            "postgres://h/d?ssl=true&sslrootcert=ca.pem",
            "postgres://h/d?sslrootcert=ca.pem&sslmode=verify-full",
            False,
        ),
    ],
)
def test_nodes_ssl_parameter_means_what_it_means_there(text: str, url: str, verifies_server: bool) -> None:
    dsn = Dsn.parse(text)
    assert (dsn.url, dsn.verifies_server) == (url, verifies_server)


@pytest.mark.parametrize("name", ["my_db", "my-db", "größe", "db$1", "7"])
def test_a_bare_name_is_a_database_of_the_default_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    dsn = Dsn.parse(name)
    assert (dsn.database, dsn.target) == (name, "db.example:5432")


@looped(
    ("text", "url"),
    [
        ("postgres://me:a[b]c@h/d", "postgres://me:a%5Bb%5Dc@h/d"),
        ("postgres://me:a@b:c@h/d", "postgres://me:a%40b%3Ac@h/d"),
        ("postgres://me:a%zz@h/d", "postgres://me:a%25zz@h/d"),
        ("postgres://h/a;b", "postgres://h/a%3Bb"),
        ("host=::1 port=5433", "postgresql://?host=%5B%3A%3A1%5D&port=5433"),
    ],
)
def test_what_urls_should_quote_is_quoted_for_the_driver(text: str, url: str) -> None:
    assert Dsn.parse(text).url == url


def test_messages_keep_what_is_no_secret() -> None:
    dsn = Dsn.parse("postgres://postgres:postgres@postgres/postgres?statement_timeout=off&secretly=x1x")
    said = 'FATAL: password authentication failed for user "postgres", statement_timeout off'
    assert dsn.scrub(said) == said
    assert dsn.scrub('unrecognized parameter "secretly" = x1x') == 'unrecognized parameter "***" = ***'


NOISE = st.text("0129@:/?#[]%&= ;,.'\\\n-_", max_size=6)
SECRET = "Qz7xKvW9"


@given(NOISE, NOISE, st.sampled_from(["postgres://u:{}@127.0.0.1:1/db", "host=h password={} port=1"]))
@examples(1000)
def test_a_password_is_never_shown_whatever_is_around_it(before: str, after: str, form: str) -> None:
    text = form.format(before + SECRET + after)
    said = f"{masked(text)} {result_of(text)}"
    assert not any(SECRET[at : at + 3] in said for at in range(len(SECRET) - 2)), (text, said)


def result_of(text: str) -> str:
    try:
        dsn = Dsn.parse(text)
    except ConnectionConfigError as error:
        return str(error)
    return f"{dsn!r} {dsn.name}"


@pytest.mark.parametrize("port", ["99999", "0", "five"])
def test_a_bad_port_in_the_environment_is_named(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", port)
    with pytest.raises(ConnectionConfigError, match="environment variable PGPORT: a port is a number"):
        Dsn.parse("my_db")


@looped(
    "scheme",
    [
        "postgresql+asyncpg",
        "postgresql+psycopg",
        "postgresql+psycopg_async",
        "postgresql+psycopg2",
        "postgresql+pg8000",
        "postgres+asyncpg",
        "PostgreSQL+AsyncPG",
    ],
)
def test_the_driver_in_a_url_of_sqlalchemy_is_dropped(scheme: str) -> None:
    dsn = Dsn.parse(f"{scheme}://me:secret@h:6000/d?application_name=app")
    assert dsn.url == f"{scheme.partition('+')[0].lower()}://me:secret@h:6000/d"
    assert (dsn.target, dsn.database, dsn.application_name) == ("h:6000", "d", "app")
    assert masked(f"{scheme}://me:secret@h/d").endswith("://me:***@h/d")


def test_parameters_of_another_driver_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "graphile_worker.db")
    dsn = Dsn.parse("postgresql+asyncpg://h/d?prepared_statement_cache_size=0&timeout=5&search_path=x")
    assert dsn.url == "postgresql://h/d?search_path=x"
    assert caplog.messages == [
        "connection_string: ignored parameters of another driver: prepared_statement_cache_size, timeout"
    ]


@looped("mode", ["disable", "prefer", "require", "verify-full"])
def test_ssl_may_be_a_mode_as_asyncpg_has_it(mode: str) -> None:
    dsn = Dsn.parse(f"postgresql+asyncpg://h/d?ssl={mode}")
    assert (dsn.url, dsn.verifies_server) == (f"postgresql://h/d?sslmode={mode}", False)
    assert Dsn.parse(f"postgresql://h/d?ssl={mode}&sslmode=allow").url == "postgresql://h/d?sslmode=allow"
