"""`?ssl=true` and `?ssl=false`, as Graphile Worker for Node writes them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from db.tls_proxy import CERTIFICATE, in_front_of
from graphile_worker.database.connections.dsn import Dsn
from graphile_worker.database.connections.open import connect
from graphile_worker.errors import ConnectionFailedError


@pytest.fixture
def with_tls(database_url: str) -> Iterator[str]:
    """The URL of the test's database over TLS, without parameters."""
    dsn = Dsn.parse(database_url)
    with in_front_of(*dsn.addresses[0], tls=True) as port:
        yield f"postgres://{_login(dsn)}@127.0.0.1:{port}/{dsn.database}"


@pytest.fixture
def without_tls(database_url: str) -> Iterator[str]:
    """The same from a server that knows no TLS."""
    dsn = Dsn.parse(database_url)
    with in_front_of(*dsn.addresses[0], tls=False) as port:
        yield f"postgres://{_login(dsn)}@127.0.0.1:{port}/{dsn.database}"


def _login(dsn: Dsn) -> str:
    parts = urlsplit(dsn.url)
    return parts.netloc.rpartition("@")[0] or dict(parse_qsl(parts.query)).get("user", "")


async def is_encrypted(url: str) -> bool:
    """Connect, ask something, and look at the connection."""
    connection = await connect(url)
    try:
        assert await connection.fetchval("select 1") == 1
        transport = connection._transport  # type: ignore[attr-defined]
        return transport.get_extra_info("ssl_object") is not None
    finally:
        await connection.close()


async def test_true_is_tls_with_a_server_that_the_system_trusts(
    with_tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectionFailedError, match=r"TLS with .* failed: .*self.signed certificate"):
        await connect(f"{with_tls}?ssl=true")
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    assert await is_encrypted(f"{with_tls}?ssl=true")


async def test_true_checks_the_name_of_the_server(with_tls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    other = with_tls.replace("127.0.0.1", "127.0.0.2")  # the same server under a name that it does not have
    with pytest.raises(ConnectionFailedError, match=r"TLS with .* failed: .*127\.0\.0\.2"):
        await connect(f"{other}?ssl=true")


async def test_an_authority_of_ones_own_is_named_in_libpqs_words(with_tls: str) -> None:
    assert await is_encrypted(f"{with_tls}?ssl=true&sslrootcert={CERTIFICATE}")
    assert await is_encrypted(f"{with_tls}?sslmode=no-verify")


async def test_true_refuses_a_server_without_tls(without_tls: str) -> None:
    with pytest.raises(ConnectionFailedError, match=r"does not accept TLS.*sslmode or ssl") as found:
        await connect(f"{without_tls}?ssl=true")
    assert not found.value.is_away, "waiting does not help"


async def test_false_asks_for_no_tls(without_tls: str) -> None:
    assert not await is_encrypted(f"{without_tls}?ssl=false")
