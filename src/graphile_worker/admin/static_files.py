"""Static files: served under a hash of their content, so that browsers may keep them."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.responses import Response

from .call import Call
from .routes import Route

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
KEPT = "public, max-age=31536000, immutable"


class StaticFiles:
    """All files of `static/`, in memory. Modules import each other by relative paths: one hash covers all."""

    def __init__(self) -> None:
        folder = files("graphile_worker.admin").joinpath("static")
        self._content = {
            file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in TYPES
        }
        together = b"".join(name.encode() + body for name, body in sorted(self._content.items()))
        self._hash = hashlib.sha256(together).hexdigest()[:12]

    def url(self, name: str) -> str:
        """The path of a file below the dashboard's root."""
        return f"/static/{self._hash}/{name}"

    @property
    def route(self) -> Route:
        """Static files need no sign-in: the sign-in page uses them."""
        return Route(
            method="GET", path="/static/{hash}/{name}", handler=self.serve, permission="open",
            summary="Static files",
        )  # fmt: skip

    async def serve(self, call: Call) -> Response:
        name, hash = call.path_values["name"], call.path_values["hash"]
        body = self._content.get(name)
        if body is None or hash != self._hash:
            return Response("Not found\n", 404, media_type="text/plain")
        return Response(body, headers={"Cache-Control": KEPT, "Content-Type": TYPES[name.rpartition(".")[2]]})
