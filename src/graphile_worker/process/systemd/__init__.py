"""What a worker tells systemd: that it is ready, what it does, that it is alive, that it stops or reloads.

A unit of `Type=notify` sets NOTIFY_SOCKET; without that variable none of this is used.
"""

from .environment import Systemd

__all__ = ["Systemd"]
