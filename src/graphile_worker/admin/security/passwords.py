"""Hashes of passwords (scrypt) and of API tokens (SHA-256), as the configuration holds them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

from ...errors import ConfigError

COST = (2**15, 8, 1)
"""n, r and p of scrypt: 32 MB and about a tenth of a second."""
MAX_MEMORY = 256 * 1024 * 1024
MAX_PASSWORD = 1024
"""Characters of a password that is checked at all."""
TOKEN_BYTES = 32
_FORM = re.compile(
    r"scrypt\$(\d{1,8})\$(\d{1,3})\$(\d{1,3})\$([A-Za-z0-9_-]{16,64})\$([A-Za-z0-9_-]{22,128})"
)
_TOKEN = re.compile(r"sha256\$[0-9a-f]{64}")


def hash_password(password: str) -> str:
    """A text for the configuration: `scrypt$n$r$p$salt$hash`."""
    salt = secrets.token_bytes(16)
    n, r, p = COST
    return f"scrypt${n}${r}${p}${encoded(salt)}${encoded(_scrypt(password, salt, COST))}"


def check_password_hash(text: str) -> None:
    """Refuse a text that is no hash, or one that would take too much memory to check."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError("expected a hash as `graphile-worker admin hash` prints it")
    n, r, p = (int(found[index]) for index in (1, 2, 3))
    if n < 2 or n & (n - 1) or r < 1 or not 1 <= p <= 16 or 128 * n * r > MAX_MEMORY // 2:
        raise ConfigError("the cost of this hash is out of bounds; make it with `graphile-worker admin hash`")


def matches(password: str, text: str) -> bool:
    """Whether this is the password of the hash. Takes about a tenth of a second: call it in a thread."""
    found = _FORM.fullmatch(text)
    if found is None or len(password) > MAX_PASSWORD:
        return False
    cost = (int(found[1]), int(found[2]), int(found[3]))
    expected = decoded(found[5])
    return hmac.compare_digest(_scrypt(password, decoded(found[4]), cost, len(expected)), expected)


def new_token() -> str:
    """A secret of 32 random bytes."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> str:
    """A text for the configuration. The token is random, so one round of SHA-256 is enough."""
    return f"sha256${hashlib.sha256(token.encode()).hexdigest()}"


def check_token_hash(text: str) -> None:
    """Refuse a text that is no hash of a token."""
    if not _TOKEN.fullmatch(text):
        raise ConfigError("expected the hash of a token as `graphile-worker admin token` prints it")


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int], length: int = 32) -> bytes:
    n, r, p = cost
    content = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(content, salt=salt, n=n, r=r, p=p, maxmem=MAX_MEMORY, dklen=length)


def encoded(content: bytes) -> str:
    """For a hash or a cookie: base64 without the signs that these use for themselves."""
    return urlsafe_b64encode(content).decode().rstrip("=")


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
