"""Signing in: checks a password or a one-time link, within the limits of attempts."""

from __future__ import annotations

import asyncio
import re
from functools import cache

from .answers import Problem
from .auth import SIMPLE_USER, Credential, FailedSignIn, SignIn
from .limits import address_key
from .passwords import hash_password, matches

LONGEST_NAME = 200
_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")


async def check_password(sign_in: SignIn, user: str, password: str, address: str) -> Credential:
    """The user, if the password is right. The answer is the same for a wrong user and a wrong password."""
    name = user or sign_in.only_user or SIMPLE_USER
    keys = [address_key(address), f"user {name[:LONGEST_NAME]}"]
    sign_in.attempts.begin(keys)
    found = sign_in.user(name)
    async with sign_in.computations.slot():
        hashed = found.hash if found is not None else _hash_of_no_one()
        is_right = await asyncio.to_thread(matches, password, hashed)
    if found is None or not is_right:
        _report(sign_in, name, "password", address)
        raise Problem(401, "The user or the password is wrong")
    sign_in.attempts.succeeded(keys)
    return found


def check_link(sign_in: SignIn, secret: str, address: str) -> Credential:
    """The credential of the one-time link, if it has not been used."""
    keys = [address_key(address)]
    sign_in.attempts.begin(keys)
    found = sign_in.use_link(secret)
    if found is None:
        _report(sign_in, "", "link", address)
        raise Problem(
            401, "This link has been used, or is not valid",
            "Each link signs in once. Restart `graphile-worker admin` to get another one.",
        )  # fmt: skip
    sign_in.attempts.succeeded(keys)
    return found


def safe_path(path: str) -> str:
    """A path of this dashboard to go to after signing in; `/` in place of anything else."""
    return path if _PATH.fullmatch(path) else "/"


def _report(sign_in: SignIn, user: str, how: str, address: str) -> None:
    if sign_in.on_failure is not None:
        sign_in.on_failure(FailedSignIn(user[:LONGEST_NAME], how, address))


@cache
def _hash_of_no_one() -> str:
    """What an unknown user's password is compared with, so that it takes as long as for a known one."""
    return hash_password("no one has this password")
