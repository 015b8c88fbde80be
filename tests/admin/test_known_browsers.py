"""A browser in which a user has signed in before is not kept out by attempts of others."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from admin.test_sign_in import PASSWORD, SECRET, app_with, from_address, log_in
from graphile_worker.admin import SignIn
from graphile_worker.admin.security.passwords import hash_password

HASHED = hash_password(PASSWORD)


def sign_in(secret: str = SECRET) -> SignIn:
    return SignIn(users=dict.fromkeys(("ada", "eve"), f"viewer:{HASHED}"), secret=secret)


@pytest.fixture
async def cookies() -> Any:
    """Those of a browser in which Ada has signed in, whose session is over."""
    async with from_address(app_with(sign_in()), "10.0.0.1") as http:
        assert (await log_in(http)).status_code == 303
        await http.post("/logout")
        return dict(http.cookies)


async def attack(app: Any, address: str) -> None:
    """Until no more attempts are checked."""
    async with from_address(app, address) as http:
        while (await log_in(http, password="wrong")).status_code == 401:
            pass


async def attempt(app: Any, address: str, cookies: Any, **fields: str) -> httpx.Response:
    async with from_address(app, address) as http:
        http.cookies.update(cookies)
        return await log_in(http, **fields)


@pytest.mark.parametrize("stranger", ["192.0.2.1", "10.0.0.7"])
async def test_a_known_browser_gets_in_after_a_restart_from_any_address(cookies: Any, stranger: str) -> None:
    """Also if the attempts come from the same address, as behind one router."""
    app = app_with(sign_in())  # it remembers no address
    await attack(app, stranger)
    assert (await attempt(app, "10.0.0.7", {})).status_code == 429
    assert (await attempt(app, "10.0.0.7", cookies)).status_code == 303


async def test_a_known_browser_is_no_way_around_the_pauses(cookies: Any) -> None:
    app = app_with(sign_in())
    checked = [
        (await attempt(app, f"192.0.2.{number}", cookies, password="wrong")).status_code
        for number in range(8)
    ]
    assert checked == [401] * 5 + [429] * 3
    assert (await attempt(app, "10.0.0.7", {})).status_code == 303  # only the browser is paused


async def test_it_is_of_one_user_and_signed(cookies: Any) -> None:
    app = app_with(sign_in())
    await attack(app, "10.0.0.7")
    assert (await attempt(app, "10.0.0.7", cookies, user="eve")).status_code == 429
    forged = {name: "x" + value[1:] for name, value in cookies.items()}
    assert (await attempt(app, "10.0.0.7", forged)).status_code == 429
    other = app_with(sign_in("another secret"))
    await attack(other, "10.0.0.7")
    assert (await attempt(other, "10.0.0.7", cookies)).status_code == 429
