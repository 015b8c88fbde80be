"""Programs with a blocking client, each run in a process of its own: `python programs.py NAME URL`."""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import signal
import sys
import threading
import time

from graphile_worker import SyncWorkerUtils, WorkerUtils, make_sync_worker_utils, make_worker_utils
from graphile_worker.database.connections.bound import run_blocking
from graphile_worker.errors import GraphileWorkerError
from support.working import IS_LOCKED_OUT, wait_until

URL = sys.argv[2] if len(sys.argv) > 2 else None
logging.getLogger("graphile_worker").setLevel(logging.ERROR)  # not that no worker knows these tasks


def fork_before() -> None:
    """The child is forked before the first call, and each process connects by itself."""
    utils = make_sync_worker_utils(connection_string=URL)
    child = os.fork()
    utils.add_job("child" if child == 0 else "parent")
    if child:
        assert os.waitpid(child, 0)[1] == 0


def fork_after() -> None:
    """The child is forked from a parent with open connections, uses the client or not, and ends normally."""
    utils = make_sync_worker_utils(connection_string=URL)
    utils.add_job("parent")
    for number in range(3):
        child = os.fork()
        if child == 0:
            if number:
                utils.add_job("child")
                assert threading.active_count() == 2
            if number == 2:
                del utils
                gc.collect()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        utils.add_job("parent")  # its connections are still alive and heard


def fork_while_busy() -> None:
    """Forked while other threads are calling: their locks and calls do not exist in the child."""
    utils = make_sync_worker_utils(connection_string=URL, call_timeout=100)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            utils.add_job("busy")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            utils.add_job("child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    for thread in threads:
        thread.join()
    utils.add_job("parent")


def fork_with_the_other_client() -> None:
    """An asynchronous client of the parent is refused in the child, where its calls would never end."""
    with asyncio.Runner() as runner:
        utils = runner.run(_opened())
        runner.run(utils.add_job("parent"))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run_blocking(utils.add_job("child"))
            except GraphileWorkerError as error:
                status = 0 if "before the process was forked" in str(error) else 1
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        runner.run(utils.add_job("parent"))
        runner.run(utils.release())


async def _opened() -> WorkerUtils:
    return await make_worker_utils(connection_string=URL)


def forgets_to_release() -> None:
    make_sync_worker_utils(connection_string=URL).add_job("one")
    kept.append(make_sync_worker_utils(connection_string=URL))
    kept[0].add_job("two")


def adds_at_exit() -> None:
    utils = make_sync_worker_utils(connection_string=URL)
    utils.add_job("one")
    atexit.register(lambda: utils.add_job("two"))


def exits_in_a_loop() -> None:
    async def main() -> None:
        utils = make_sync_worker_utils(connection_string=URL)
        await asyncio.to_thread(utils.add_job, "one")
        await asyncio.to_thread(utils.add_job, "two")

    asyncio.run(main())


def is_interrupted() -> None:
    """Ctrl-C while a call waits; the next call works."""
    utils = make_sync_worker_utils(connection_string=URL)
    handle = utils.add_job("nothing runs this", keep=True)
    start = time.monotonic()
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        handle.result()
    except KeyboardInterrupt:
        print(f"interrupted after {time.monotonic() - start:.1f} s", file=sys.stderr)
    else:
        raise AssertionError
    with make_sync_worker_utils(connection_string=URL) as other, other.with_pg_client() as connection:

        def interrupt() -> None:
            with other.with_pg_client() as watching:
                wait_until(lambda: watching.fetchval(IS_LOCKED_OUT))
            os.kill(os.getpid(), signal.SIGINT)

        connection.execute("begin; lock table graphile_worker._private_jobs")
        threading.Thread(target=interrupt).start()
        try:
            utils.add_job("never")
        except KeyboardInterrupt:
            # The statement is cancelled in the background; it must not get the lock before that.
            wait_until(lambda: not connection.fetchval(IS_LOCKED_OUT))
            connection.execute("commit")
    utils.add_job("one")


kept: list[SyncWorkerUtils] = []

if __name__ == "__main__":
    globals()[sys.argv[1]]()
