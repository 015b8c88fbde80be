"""What runs on a machine of the Ray cluster: one call. Ray imports this module by its name."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import ray

from ...executors.cluster_side import run_there, running_call
from ...executors.messages import Ask, ClusterNote, StackNote


def run_on_cluster(data: bytes, number: int, mailbox: Any) -> tuple[int, bytes]:
    """Run a call here; how many notes it has sent, and its answer as JSON."""
    sent = 0

    def send(note: ClusterNote) -> None:
        nonlocal sent
        sent += 1
        mailbox.note.options(num_returns=0).remote(number, msgspec.json.encode(note))

    def listen() -> None:
        mailbox.next_request.remote(number).future().add_done_callback(obey)

    def obey(request: Any) -> None:
        if request.exception() is not None or not (raw := request.result()):
            return
        ask = msgspec.json.decode(raw, type=Ask)
        running = running_call(str(number))
        if running is None:
            return
        if ask.what == "stack":
            send(StackNote(number, running.stack()))
        else:
            running.abort(ask.reason, cancels=ask.what == "cancel")
        listen()

    listen()
    util: Any = ray.util
    place = f"{util.get_node_ip_address()}, process {os.getpid()}"
    answer = run_there(data, str(number), place, send)
    return sent, answer
