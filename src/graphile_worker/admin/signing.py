"""Signed values in cookies: readable by everyone, made by us only, and valid for a while."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import TypeVar

import msgspec

T = TypeVar("T")

MAX_SIGNED = 4096
"""Characters of a signed value that are looked at."""


class Signer:
    """Signs with HMAC-SHA-256. Each purpose has a key of its own, so a notice cannot serve as a session."""

    def __init__(self, secret: str = "") -> None:
        """A random key is made if there is no secret."""
        self._key = hashlib.sha256(secret.encode()).digest() if secret else secrets.token_bytes(32)

    def sign(self, purpose: str, value: object) -> str:
        """The value as text for a cookie."""
        content = urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
        return f"{content}.{self._mac(purpose, content)}"

    def read(self, purpose: str, text: str, type: type[T]) -> T | None:
        """The value that was signed for this purpose; None for anything else."""
        content, dot, mac = text.rpartition(".")
        if not dot or len(text) > MAX_SIGNED or not text.isascii():
            return None
        if not hmac.compare_digest(mac, self._mac(purpose, content)):
            return None
        try:
            return msgspec.json.decode(urlsafe_b64decode(content + "=" * (-len(content) % 4)), type=type)
        except (Base64Error, msgspec.DecodeError, ValueError):
            return None

    def fingerprint(self, *parts: str) -> str:
        """A short text that changes when one of the parts does, and tells nothing about them."""
        return self._mac("fingerprint", "\0".join(parts))[:22]

    def _mac(self, purpose: str, content: str) -> str:
        key = hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()
        mac = hmac.new(key, content.encode(), hashlib.sha256).digest()
        return urlsafe_b64encode(mac).decode().rstrip("=")
