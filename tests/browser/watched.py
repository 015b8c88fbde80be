"""A page under watch: whatever a browser holds against it becomes a fault, and faults fail the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 60_000
"""Milliseconds for anything to happen at all; only a failure ever takes so long."""
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", event => console.error(
    `CSP: ${event.violatedDirective} blocked ${event.blockedURI} at ${event.sourceFile}:${event.lineNumber}`
))
"""
ENDED_BY_NAVIGATION = "net::ERR_ABORTED"


class Faults:
    """What went wrong on the pages of one browser context."""

    def __init__(self, origin: str) -> None:
        self.found: list[str] = []
        self._origin = urlsplit(origin).netloc
        self._expected: set[int] = set()
        self._is_offline = False

    def watch(self, context: Any) -> None:
        """Watch every page that this context opens."""
        context.add_init_script(REPORT_VIOLATIONS)
        context.on("page", self._watch_page)
        context.on("request", self._check_request)
        context.on("requestfailed", self._check_failure)
        context.on("response", self._check_response)
        context.on("weberror", lambda error: self.add(f"script: {error.error}"))

    def add(self, text: str) -> None:
        self.found.append(text)

    @contextmanager
    def expecting(self, *statuses: int) -> Iterator[None]:
        """Answers with these statuses are what the test wants to see."""
        before = self._expected
        self._expected = before | set(statuses)
        yield
        self._expected = before

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Requests may fail in here, because the test stopped something."""
        self._is_offline = True
        yield
        self._is_offline = False

    def check(self) -> None:
        """Fail if anything was found, and forget it."""
        found, self.found = self.found, []
        assert not found, "\n".join(found)

    def wait_for(self, text: str, page: Any) -> None:
        """Wait for a fault that the test wants to see, and forget all; the console is later than the page."""
        for _ in range(PATIENCE // 50):
            if any(text in fault for fault in self.found):
                return self.found.clear()
            page.wait_for_timeout(50)
        raise AssertionError(f"no fault about {text!r} among {self.found}")

    def _watch_page(self, page: Any) -> None:
        page.on("dialog", self._check_dialog)
        page.on("console", self._check_console)

    def _check_dialog(self, dialog: Any) -> None:
        if dialog.type == "beforeunload":
            dialog.accept()
            return
        self.add(f"dialog: {dialog.type}: {dialog.message[:200]}")
        dialog.dismiss()

    def _check_console(self, message: Any) -> None:
        # Failed loads are reported by their requests and responses, which say more.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.add(f"console: {message.type}: {message.text[:500]}")

    def _check_request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.netloc != self._origin and parts.scheme not in ("about", "blob"):
            self.add(f"foreign request: {request.url[:200]}")

    def _check_failure(self, request: Any) -> None:
        if not self._is_offline and request.failure != ENDED_BY_NAVIGATION:
            self.add(f"failed: {request.method} {request.url[:200]}: {request.failure}")

    def _check_response(self, response: Any) -> None:
        if response.status >= 400 and response.status not in self._expected and not self._is_offline:
            self.add(f"status {response.status}: {response.request.method} {response.url[:200]}")


def expect(subject: Any) -> Any:
    """Playwright's assertion that waits. It is imported late: the tests are collected without Playwright."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    return expect(subject)
