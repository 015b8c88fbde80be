"""Parses a connection string: a URL, libpq's key=value form, or a bare database name.

Only strings that were parsed completely are ever shown, and no error quotes a part of one: a password with an
unescaped `/`, `@` or space can end up anywhere. Ambiguous strings are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from ...errors import ConnectionConfigError

SCHEMES = ("postgres", "postgresql")
UNREADABLE_URL = (
    "connection_string: it cannot be read as a PostgreSQL URL; it looks like "
    "postgres://user:password@host:5432/database, and in a password / is written %2F, ? %3F, # %23, @ %40"
)
UNREADABLE = (
    "connection_string: expected a URL such as postgres://user@host/database, pairs such as "
    "host=localhost dbname=database (a value with spaces in single quotes), or the name of a database"
)
BAD_PORT = "a port is a number from 1 to 65535"
HIDDEN = "***"
NOT_SHOWN = f"{HIDDEN} (not shown, because it cannot be read as a connection string)"

LIBPQ_ONLY = frozenset(
    {
        "channel_binding", "client_encoding", "gssdelegation", "gssencmode", "hostaddr", "keepalives",
        "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts", "replication",
        "requirepeer", "require_auth", "sslcertmode", "sslcompression", "sslsni", "tcp_user_timeout",
    }
)  # fmt: skip
DRIVER_ONLY = frozenset(
    {
        "async_fallback", "command_timeout", "executemany_batch_page_size", "executemany_mode",
        "executemany_values_page_size", "max_cacheable_statement_size", "max_cached_statement_lifetime",
        "prepare_threshold", "prepared_statement_cache_size", "statement_cache_size", "timeout",
        "use_native_hstore",
    }
)  # fmt: skip
"""Parameters of SQLAlchemy and of the drivers that it names in a URL; they mean nothing here."""
_PASSWORDS = frozenset({"password", "sslpassword"})
_SHOWN = LIBPQ_ONLY | DRIVER_ONLY | {
    "application_name", "connect_timeout", "database", "dbname", "fallback_application_name", "gsslib",
    "host", "krbsrvname", "options", "passfile", "port", "service", "servicefile", "ssl",
    "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslnegotiation", "sslrootcert", "target_session_attrs", "user",
    # settings of the server that people put here
    "default_transaction_isolation", "idle_in_transaction_session_timeout", "jit", "lock_timeout", "role",
    "search_path", "statement_timeout", "synchronous_commit", "timezone", "work_mem",
}  # fmt: skip
_FOREIGN_SCHEMES = frozenset(
    {
        "amqp", "amqps", "cockroachdb", "http", "https", "jdbc", "mariadb", "mongodb", "mssql", "mysql",
        "oracle", "prisma", "redis", "rediss", "socket", "sqlite",
    }
)  # fmt: skip
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST = re.compile(r"[\w.%-]*(?::[0-9]+)?|\[[0-9A-Fa-f:.]+(?:%[\w.%-]+)?\](?::[0-9]+)?")
_BARE_IPV6 = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?")
_ADDRESS = re.compile(r"[\w.%+-]+@[\w.%-]+")
_NAME = re.compile(r"(?!localhost$)[\w$-]+")  # with a dot it is more likely a host, like localhost
_PAIR = re.compile(r"\s*([A-Za-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)", re.DOTALL)


class ConnectionText(msgspec.Struct, frozen=True):
    """The parts of a connection string, percent-decoded except for the hosts."""

    scheme: str = "postgresql"
    user: str | None = None
    password: str | None = None
    hosts: str = ""
    database: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    is_pairs: bool = False

    def __repr__(self) -> str:
        return f"ConnectionText({self.masked!r})"

    @property
    def url(self) -> str:
        """As a URL with every part percent-encoded."""
        user = "" if self.user is None else quote(self.user, safe="")
        password = "" if self.password is None else f":{quote(self.password, safe='')}"
        return self._written(user + password, urlencode(self.parameters, quote_via=quote))

    def _written(self, login: str, query: str) -> str:
        at = "" if self.user is None else "@"
        path = f"/{quote(self.database, safe='/')}" if self.database else ""
        return f"{self.scheme}://{login}{at}{self.hosts}{path}{'?' if query else ''}{query}"

    @property
    def masked(self) -> str:
        """Without secrets; unknown parameters are hidden, including their names."""
        if self.is_pairs:
            return " ".join(_shown(name, value, _in_quotes) for name, value in self.parameters)
        user = "" if self.user is None else HIDDEN if ":" in self.user else quote(self.user, safe="")
        password = "" if self.password is None else f":{HIDDEN}"
        query = "&".join(_shown(name, value, _in_percents) for name, value in self.parameters)
        return self._written(user + password, query)

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that the server may quote and that could be part of a password.

        Without the password itself, which is never quoted: it often equals the user or the host.
        """
        found = {self.user} if self.user and ":" in self.user else set()
        for name, value in self.parameters:
            if name == "user" and ":" in value:
                found.add(value)
            elif name not in _SHOWN | _PASSWORDS:
                found |= {name, value}
        return frozenset(text for text in found if len(text) > 2)


def read_connection_text(text: str) -> ConnectionText:
    """Parse a connection string. Raises ConnectionConfigError, which quotes nothing of it."""
    if not isinstance(text, str):
        raise ConnectionConfigError(f"connection_string: expected text, got {type(text).__name__}")
    text = text.strip()
    if not text:
        raise ConnectionConfigError("connection_string: the string is empty")
    scheme = _SCHEME.match(text)
    if scheme is not None:
        return _from_url(scheme[1].lower(), text[scheme.end() :])
    name, question, query = text.partition("?")
    if _NAME.fullmatch(name):  # as in Node: a database of the default server
        return _checked(ConnectionText(database=name, parameters=_parameters(query) if question else ()))
    return _from_pairs(text)


def masked(text: str) -> str:
    """A connection string without secrets; nothing of one that cannot be parsed."""
    try:
        return read_connection_text(text).masked
    except ConnectionConfigError:
        return NOT_SHOWN


def split_port(text: str) -> tuple[str, str]:
    """`host:port`, `[::1]:port` or a bare host of any kind."""
    if match := re.fullmatch(r"\[([^\]]*)\](?::([0-9]+))?", text):
        return match[1], match[2] or ""
    host, colon, port = text.rpartition(":")
    is_port = bool(colon) and port.isdigit() and (":" not in host or host.startswith("/"))
    return (host, port) if is_port else (text, "")


def is_port(text: str) -> bool:
    """Whether this is a TCP port number."""
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and 1 <= int(text) <= 65535


def _from_url(scheme: str, rest: str) -> ConnectionText:
    scheme, plus, _ = scheme.partition("+")  # SQLAlchemy's form: postgresql+asyncpg
    if scheme not in SCHEMES:
        ending = "+" if plus else "://"
        got = f", got one that starts with {scheme}{ending}" if scheme in _FOREIGN_SCHEMES else ""
        raise ConnectionConfigError(
            f"connection_string: expected a URL that starts with postgres:// or postgresql://{got}"
        )
    authority = _AUTHORITY.match(rest)
    assert authority is not None  # noqa: S101 - it matches the empty text too
    login, at, hosts = authority[0].rpartition("@")
    path, question, query = rest[authority.end() :].partition("?")
    # A password with an unescaped / ? or # is cut short, and its rest with the @ follows somewhere.
    if "@" in path or "#" in path or "#" in query:
        raise ConnectionConfigError(UNREADABLE_URL)
    user, colon, password = login.partition(":")
    return _checked(
        ConnectionText(
            scheme=scheme,
            user=unquote(user) if at else None,
            password=unquote(password) if colon else None,
            hosts=hosts,
            database=unquote(path.removeprefix("/")),
            parameters=_parameters(query) if question else (),
        )
    )


def _from_pairs(text: str) -> ConnectionText:
    """libpq's `host=… dbname=…`."""
    pairs: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise ConnectionConfigError(UNREADABLE)
        value = match[2] if match[2] is not None else match[3]
        pairs.append((match[1], re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)))
        position = match.end()
    return _checked(ConnectionText(parameters=tuple(pairs), is_pairs=True))


def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        # The @ may belong to the login, if the password contains an unescaped ?.
        may_have_at = name in _PASSWORDS or (name in _SHOWN and _ADDRESS.fullmatch(value))
        if not equals or ("@" in value and not may_have_at):
            raise ConnectionConfigError(UNREADABLE_URL)
    return tuple(parse_qsl(query, keep_blank_values=True))


def _checked(text: ConnectionText) -> ConnectionText:
    """Refuse invalid hosts and ports and nested connection strings: they could be part of a password."""
    hosts = text.hosts
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ConnectionConfigError(UNREADABLE_URL)
    ports = [split_port(host)[1] for host in hosts.split(",")]
    parameters: list[tuple[str, str]] = []
    for name, value in text.parameters:
        if name == "port":
            ports += value.split(",")
        elif name == "host":
            value = ",".join(_checked_host(host) for host in value.split(","))
        elif name in ("dbname", "database"):
            _check_database(value)
        parameters.append((name, value))
    if not all(is_port(port) for port in ports if port):
        raise ConnectionConfigError(f"connection_string: {BAD_PORT}")
    _check_database(text.database)
    return msgspec.structs.replace(text, parameters=tuple(parameters))


def _checked_host(host: str) -> str:
    if host.startswith("/") and ":" not in host:  # a socket directory
        return host
    if _BARE_IPV6.fullmatch(host):
        return f"[{host}]"  # otherwise the driver reads host and port
    if not _HOST.fullmatch(host):
        raise ConnectionConfigError("connection_string: host is not the name or address of a server")
    return host


def _check_database(name: str) -> None:
    if "://" in name or ("@" in name and ":" in name):
        raise ConnectionConfigError("connection_string: its database name is a connection string itself")


def _shown(name: str, value: str, written: Callable[[str], str]) -> str:
    if name not in _SHOWN | _PASSWORDS:
        return HIDDEN
    is_secret = name in _PASSWORDS or "://" in value or (name == "user" and ":" in value)
    return f"{name}={HIDDEN if is_secret else written(value)}"


def _in_percents(value: str) -> str:
    return quote(value, safe="/,:@")


def _in_quotes(value: str) -> str:
    if value and not re.search(r"[\s'\\]", value):
        return value
    return "'" + re.sub(r"(['\\])", r"\\\1", value) + "'"
