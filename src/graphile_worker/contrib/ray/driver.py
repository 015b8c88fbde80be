"""The program that is connected to Ray: `python -m graphile_worker.contrib.ray.driver WORK CONTROL`.

It gets calls from its worker, gives them to the cluster, and sends back answers and notes. It ends when the
worker is gone, and when the cluster is lost; Ray then ends the tasks that it has started.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

import msgspec

from ...executors.messages import (
    Ask,
    CallMessage,
    LogNote,
    LostCall,
    ReadyNote,
    SendingHandler,
    StartFailure,
    apply_levels,
)
from ...executors.run_call import job_of
from ...executors.worker_connection import WorkerConnection, die_with, end_now, one_line
from ...values.lines import line
from .executor import DriverSetup

MAILBOX_WITHIN = 60.0  # seconds for the actor to start
MOST_CALLS = 100_000
"""Calls that run at once; each waits for requests."""


class Driver:
    """Between one worker and the cluster."""

    def __init__(self, worker: WorkerConnection) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._mailbox: Any = None
        self._function: Any = None
        self._references: dict[int, Any] = {}
        self._noted: dict[int, int] = {}
        """How many notes of a call have arrived."""
        self._waiting: dict[int, tuple[int, bytes]] = {}
        """Answers that must not pass their notes: how many there are, and the answer."""

    def serve(self) -> None:
        """Run calls until the worker closes the connection."""
        setup = self._worker.setup(DriverSetup)
        if setup is None:
            return
        die_with(setup.parent)
        sys.path[:] = setup.path
        logging.root.handlers[:] = [
            SendingHandler(lambda record: self._worker.send(line(LogNote(0, record))))
        ]
        apply_levels(setup.levels)
        self._worker.listen(self._obey)
        try:
            self._connect(setup)
        except BaseException as error:
            self._worker.send(line(StartFailure(one_line(error))))
            raise SystemExit(1) from None
        threading.Thread(target=self._pass_notes_on, name="graphile-worker notes", daemon=True).start()
        self._worker.send(line(ReadyNote()))
        try:
            for call in self._worker.messages(CallMessage):
                self._submit(call)
        except Exception as error:
            self._worker.send(line(StartFailure(one_line(error))))
            raise SystemExit(1) from None

    def _connect(self, setup: DriverSetup) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from .remote import Mailbox, run_on_cluster

        ray.init(setup.address, runtime_env=setup.runtime_env, log_to_driver=False, configure_logging=False)
        here = ray.get_runtime_context().get_node_id()
        actor: Any = ray.remote(Mailbox)
        self._mailbox = actor.options(
            num_cpus=0,
            max_concurrency=2 * MOST_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        ).remote()
        ray.get(self._mailbox.end.remote(0), timeout=MAILBOX_WITHIN)
        self._function = ray.remote(max_retries=0, **setup.options)(run_on_cluster)

    # -- calls ---------------------------------------------------------------------------------------------

    def _submit(self, call: CallMessage) -> None:
        job = job_of(call)
        number = call.number
        with self._lock:
            self._noted[number] = 0
        reference = self._function.options(name=f"{job.task_identifier}, job {job.id}").remote(
            msgspec.json.encode(call), number, self._mailbox
        )
        self._references[number] = reference
        reference.future().add_done_callback(lambda future: self._ended(number, future))

    def _ended(self, number: int, future: Any) -> None:
        """The cluster has answered, or never will."""
        with suppress(KeyError):
            del self._references[number]
        error = future.exception()
        if error is None:
            count, answer = future.result()
            with self._lock:
                if self._noted[number] < count:
                    self._waiting[number] = count, answer
                    return
            self._answer(number, answer)
        else:
            self._forget(number)
            self._worker.send(line(LostCall(number, why_lost(error))))

    def _answer(self, number: int, answer: bytes) -> None:
        self._forget(number)
        self._worker.send(b"[0,%d,0,%s]\n" % (number, answer))

    def _forget(self, number: int) -> None:
        with self._lock:
            self._noted.pop(number, None)
            self._waiting.pop(number, None)
        self._mailbox.end.options(num_returns=0).remote(number)

    # -- notes and requests --------------------------------------------------------------------------------

    def _pass_notes_on(self) -> None:
        """In a thread: send the notes of calls to the worker. The connection is lost with the mailbox."""
        import ray

        try:
            while True:
                notes = ray.get(self._mailbox.take.remote())
                self._worker.send(b"".join(note + b"\n" for _, note in notes))
                for number, _ in notes:
                    self._count(number)
        except BaseException as error:
            self._worker.send(line(StartFailure(why_lost(error))))
        end_now()

    def _count(self, number: int) -> None:
        with self._lock:
            if number not in self._noted:
                return
            self._noted[number] += 1
            needed, answer = self._waiting.get(number, (-1, b""))
            if self._noted[number] != needed:
                return
        self._answer(number, answer)

    def _obey(self, ask: Ask) -> None:
        """In a thread: pass on what the worker asks about a call."""
        import ray

        reference = self._references.get(ask.number)
        if reference is None:
            return
        if ask.what in ("interrupt", "kill"):
            ray.cancel(reference, force=ask.what == "kill")
        else:
            self._mailbox.ask.options(num_returns=0).remote(ask.number, msgspec.json.encode(ask))


def why_lost(error: BaseException) -> str:
    """Why there is no answer, in words for the one who looks at the job."""
    import ray.exceptions as known

    if isinstance(error, known.RayTaskError):
        return f"the Ray worker could not run the task: {one_line(error.cause)}"
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    if isinstance(error, known.OutOfMemoryError):
        return f"Ray ended the worker that ran the task, because its node ran out of memory: {first}"
    if isinstance(error, known.WorkerCrashedError):
        return f"the Ray worker that ran the task died: {first}"
    if isinstance(error, known.RuntimeEnvSetupError):
        return f"the Ray cluster could not set up the environment of the task: {first}"
    return f"the Ray cluster has lost the task: {first}"


def main() -> None:
    work, control = (int(argument) for argument in sys.argv[1:3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Driver(WorkerConnection(work, control)).serve()


if __name__ == "__main__":
    main()
