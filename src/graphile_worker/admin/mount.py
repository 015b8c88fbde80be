"""Mounting the dashboard under a prefix, for applications without a mount of their own."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


def mount(prefix: str, admin: ASGIApp, application: ASGIApp) -> ASGIApp:
    """Send what is below `prefix` to the dashboard, and all else to the application: Django, or any other."""
    prefix = "/" + prefix.strip("/")

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == prefix or path.startswith(prefix + "/")):
            await application(scope, receive, send)
            return
        root_path = scope.get("root_path", "")
        await admin({**scope, "root_path": root_path + prefix}, receive, send)

    return dispatch
