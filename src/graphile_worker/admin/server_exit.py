"""Whether the server that serves the dashboard is stopping.

uvicorn waits for open responses before it tells applications that it is stopping. A stream never ends by
itself, so the hub looks at the server's own flag: the handler of SIGTERM is a method of the server.
"""

from __future__ import annotations

import signal


def is_server_stopping() -> bool:
    """True once uvicorn was asked to stop; False under other servers."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
