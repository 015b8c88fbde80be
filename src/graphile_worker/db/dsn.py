"""Reading connection strings: URLs and libpq's key=value form, what the driver lacks, and hiding passwords.

Everything the driver understands passes through untouched (several hosts, sslmode, service files, server
settings). Parameters that only libpq knows are taken out, because the server would refuse them as settings.
"""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from ..errors import ConnectionConfigError

SCHEMES = ("postgres", "postgresql")
UNREADABLE_URL = (
    "connection_string: it cannot be read as a PostgreSQL URL; it looks like "
    "postgres://user:password@host:5432/database, and in a password / is written %2F, ? %3F, # %23, @ %40"
)
_LIBPQ_ONLY = frozenset(
    {
        "channel_binding", "client_encoding", "gssdelegation", "gssencmode", "hostaddr", "keepalives",
        "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts", "replication",
        "requirepeer", "require_auth", "sslcertmode", "sslcompression", "sslsni", "tcp_user_timeout",
    }
)  # fmt: skip
_OURS = ("application_name", "connect_timeout", "fallback_application_name")
_PAIR = re.compile(r"\s*([A-Za-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)", re.DOTALL)


class Dsn(msgspec.Struct, frozen=True):
    """A connection string made ready for the driver; what it does not say comes from the PG* variables."""

    url: str
    application_name: str | None = None
    connect_timeout: float | None = None
    keepalives: dict[str, int] = {}
    """libpq's keepalives… and tcp_user_timeout parameters, as far as they were given."""

    def __repr__(self) -> str:
        return f"Dsn({masked(self.url)!r})"

    @classmethod
    def parse(cls, text: str) -> Dsn:
        """Read a URL or a key=value string; raise ConnectionConfigError without showing the password."""
        text = text.strip()
        scheme = urlsplit(text).scheme if "://" in text else ""
        url = text if scheme else _url_from_pairs(text)
        if scheme and scheme not in SCHEMES:
            raise ConnectionConfigError(
                f"connection_string: expected a URL that starts with postgres:// or postgresql://, "
                f"got one that starts with {scheme}://"
            )
        parts = urlsplit(url)
        if scheme and _is_cut_inside_password(parts):
            raise ConnectionConfigError(UNREADABLE_URL)
        passed: list[tuple[str, str]] = []
        own: dict[str, str] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in _LIBPQ_ONLY or name in _OURS:
                own[name] = value
            else:
                passed.append((name, value))
        return cls(
            # urlunsplit would drop the empty authority of postgres:///name
            url=_join(parts.scheme, parts.netloc, parts.path, urlencode(passed, quote_via=quote)),
            application_name=own.get("application_name") or own.get("fallback_application_name"),
            connect_timeout=_connect_timeout(own.get("connect_timeout")),
            keepalives=_numbers(own),
        )

    @property
    def target(self) -> str:
        """Where it leads, for messages: host and port of each host, or the socket's folder."""
        addresses = self.addresses
        if not addresses:
            return f"the local server's socket or localhost, port {self._ports[0]}"
        return ", ".join(
            f"socket {host}/.s.PGSQL.{port}" if host.startswith("/") else _host_and_port(host, port)
            for host, port in addresses
        )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host, or folder of the socket, and port of each server that is named; empty if none is."""
        parts = urlsplit(self.url)
        query = dict(parse_qsl(parts.query))
        named = parts.netloc.rpartition("@")[2] or query.get("host") or os.environ.get("PGHOST", "")
        ports = self._ports
        found: list[tuple[str, int]] = []
        for index, text in enumerate(named.split(",") if named else []):
            port = ports[index] if len(ports) > 1 and index < len(ports) else ports[0]
            host, own_port = _split_port(unquote(text))
            found.append((host, int(own_port or port)))
        return found

    @property
    def _ports(self) -> list[str]:
        query = dict(parse_qsl(urlsplit(self.url).query))
        return (query.get("port") or os.environ.get("PGPORT") or "5432").split(",")

    @property
    def name(self) -> str:
        """The database and where it is, for messages."""
        return f"{self.database or 'the default database'} at {self.target}"

    @property
    def database(self) -> str | None:
        """The database's name, if the string or PGDATABASE gives one."""
        parts = urlsplit(self.url)
        query = dict(parse_qsl(parts.query))
        return (
            parts.path.lstrip("/")
            or query.get("dbname")
            or query.get("database")
            or os.environ.get("PGDATABASE")
        )


def _is_cut_inside_password(parts: SplitResult) -> bool:
    """Whether a `/`, `?` or `#` of the password was taken for an end, so that its rest would be shown."""
    loose = any("@" in pair and "=" not in pair for pair in parts.query.split("&"))
    return bool(parts.fragment) or loose or ("@" in parts.path and "@" not in parts.netloc)


def _is_cut(text: str) -> bool:
    try:
        return _is_cut_inside_password(urlsplit(text))
    except ValueError:
        return True


def masked(text: str) -> str:
    """A connection string that may be shown: every password replaced by three asterisks."""
    # A password ends at the last @ before the path; one with a bare / ? or # in it at the last @ of all.
    end = r".*(@)" if _is_cut(text) else r"[^/?#]*(@)"
    text = re.sub(rf"(://[^/?#@]*?:){end}", r"\1***\2", text, flags=re.DOTALL)
    text = re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1***", text, flags=re.IGNORECASE)
    if "://" in text:
        return text
    text = re.sub(r"^([^\s=@:]*:).*(@)", r"\1***\2", text, flags=re.DOTALL)  # a URL without its scheme
    return re.sub(r"((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|\S+)", r"\1***", text, flags=re.IGNORECASE)


def _split_port(text: str) -> tuple[str, str]:
    """`host:port`, `[::1]:port` or a bare host of any kind."""
    if match := re.fullmatch(r"\[([^\]]*)\](?::(\d+))?", text):
        return match[1], match[2] or ""
    host, colon, port = text.rpartition(":")
    is_port = bool(colon) and port.isdigit() and (":" not in host or host.startswith("/"))
    return (host, port) if is_port else (text, "")


def _host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url_from_pairs(text: str) -> str:
    """libpq's `host=… dbname=…` as a URL."""
    pairs: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise ConnectionConfigError(
                "connection_string: expected a URL such as postgres://user@host/database or pairs such as "
                "host=localhost dbname=database"
            )
        value = match[2] if match[2] is not None else match[3]
        pairs.append((match[1], re.sub(r"\\(.)", r"\1", value)))
        position = match.end()
    if not pairs:
        raise ConnectionConfigError("connection_string: the string is empty")
    return "postgresql://?" + urlencode(pairs, quote_via=quote)


def _join(scheme: str, netloc: str, path: str, query: str) -> str:
    rest = urlunsplit(("", "", path, query, ""))
    return f"{scheme}://{netloc}{rest}"


def _connect_timeout(text: str | None) -> float | None:
    """libpq: whole seconds, 0 or less waits for ever (here: as long as the driver waits by itself)."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise ConnectionConfigError(f"connection_string: connect_timeout is not a number: {text!r}") from None
    return seconds if seconds > 0 else None


def _numbers(parameters: dict[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in parameters.items():
        if name.startswith("keepalives") or name == "tcp_user_timeout":
            try:
                found[name] = int(text)
            except ValueError:
                message = f"connection_string: {name} is not a whole number: {text!r}"
                raise ConnectionConfigError(message) from None
    return found
