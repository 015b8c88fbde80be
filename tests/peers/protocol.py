"""Peers: a Python, a Node.js and a Rust process that the tests steer in the same way.

A peer reads calls from its standard input, one line of JSON each, and answers each with a line of JSON; see
`PROTOCOL`. Its tasks `echo`, `tick` and `batch` write each run into the table `peer_runs`. When it begins and
when it ends, a run takes a number from one sequence of the database. So clocks play no part: two runs
overlapped if one began between the two numbers of the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.node_packages import NodePackages
from support.command_line import clean_environment
from support.working import PATIENCE

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
PYTHON, NODE, RUST = "python", "node", "rust"
RUNTIMES = (PYTHON, NODE, RUST)

PROTOCOL = """
["migrate"]                          install or upgrade the schema
["add", task, payload, spec]         the new job's id
["add_many", [[task, payload, spec], …]]   their ids
["remove", key]
["reschedule", [id, …], changes]     the ids of the jobs that were changed
["give_up", [id, …], reason]         the same
["work", options]                    start a worker; what it writes into locked_by

A spec has queue_name, run_at, max_attempts, job_key, job_key_mode, priority and flags, as in the database's
function; changes have run_at, priority, attempts and max_attempts. Options are concurrency, poll
(milliseconds), local_queue (its size), crontab (text), recovery, forbidden_flags; not in Node accepted_flags
and flag_allowlist; for Python also hold and patience (seconds that a shutdown waits for jobs, which is 5 in
Rust and has no end in Node).

A payload, or an item of a batch's payload, says what its task does, in this order: pause (milliseconds), gate
(a name: wait until the test opens it), add ([task, payload, spec]), fail_before (fail in attempts before this
one).
"""

SCHEMA = """
    create sequence public.peer_steps;
    create table public.peer_runs (
        id bigint primary key generated always as identity,
        runtime text not null,
        process integer not null,
        job_id bigint not null,
        task text not null,
        queue integer,
        attempt integer not null,
        key text,
        payload jsonb,
        began bigint not null default nextval('public.peer_steps'),
        ended bigint,
        outcome text
    );
    create index on public.peer_runs (job_id);
    create table public.peer_gates (name text primary key);

    create function public.peer_begin(
        runtime text, process integer, job_id bigint, task text, queue integer, attempt integer, key text,
        payload jsonb
    ) returns bigint language sql as $$
        insert into public.peer_runs (runtime, process, job_id, task, queue, attempt, key, payload)
        values ($1, $2, $3, $4, $5, $6, $7, $8) returning id
    $$;
    create function public.peer_end(run bigint, outcome text) returns bigint language sql as $$
        update public.peer_runs set ended = nextval('public.peer_steps'), outcome = $2 where id = $1
        returning id
    $$;
    create function public.peer_gate_is_open(name text) returns boolean language sql as $$
        select exists (select from public.peer_gates gate where gate.name = $1)
    $$;
"""


class RefusedError(Exception):
    """What a peer answered instead of a result."""


class Peer:
    """A running process of one runtime."""

    def __init__(self, runtime: str, process: Process) -> None:
        self.runtime = runtime
        self.worker_id: str | None = None
        self.said: list[str] = []
        """The lines on standard error."""
        self._process = process
        self._listener = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, name: str, *arguments: Any) -> Any:
        """The answer to a call of the protocol."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        assert line, f"the {self.runtime} process ended early:\n{self.errors}"
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["answer"]

    async def add(self, task: str, payload: Any = None, **spec: Any) -> int:
        return int(await self.call("add", task, {} if payload is None else payload, spec))

    async def work(self, **options: Any) -> Peer:
        """Let it work from now on."""
        self.worker_id = await self.call("work", options)
        return self

    async def stop(self) -> int:
        """Let it end gracefully, as a supervisor does; its exit status."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> int:
        """End it without a chance to do anything more."""
        if self._process.returncode is None:
            self._process.kill()
        return await self.ended()

    async def ended(self) -> int:
        try:
            status = await asyncio.wait_for(self._process.wait(), PATIENCE)
        except TimeoutError:
            raise AssertionError(f"the {self.runtime} worker does not end:\n{self.errors}") from None
        await asyncio.wait_for(self._listener, PATIENCE)
        return status

    async def close(self) -> None:
        """Kill what is left of it."""
        await self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def errors(self) -> str:
        return "".join(self.said)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.said.append(line.decode(errors="replace"))


@dataclass(frozen=True)
class Programs:
    """What is needed to start peers."""

    node: NodePackages
    rust: Path

    def command(self, runtime: str, url: str) -> list[str]:
        return {
            PYTHON: [sys.executable, "-m", "peers.python_peer", url],
            NODE: [str(self.node.binary), str(FOLDER / "node_peer.mjs"), url],
            RUST: [str(self.rust), url],
        }[runtime]


class Peers:
    """The peers of one database; those that are left at the end of a test are killed."""

    def __init__(self, programs: Programs, url: str) -> None:
        self.url = url
        self._programs = programs
        self._all: list[Peer] = []

    async def start(self, runtime: str) -> Peer:
        process = await asyncio.create_subprocess_exec(
            *self._programs.command(runtime, self.url),
            stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._environment(), limit=1 << 24,
        )  # fmt: skip
        peer = Peer(runtime, process)
        self._all.append(peer)
        return peer

    async def working(self, runtime: str, **options: Any) -> Peer:
        """Start one that works."""
        return await (await self.start(runtime)).work(**options)

    @asynccontextmanager
    async def worker(self, runtime: str, **options: Any) -> AsyncIterator[Peer]:
        """A worker while the block runs, then stopped gracefully."""
        peer = await self.working(runtime, **options)
        yield peer
        await peer.stop()

    async def close(self) -> None:
        for peer in self._all:
            await peer.close()

    def _environment(self) -> dict[str, str]:
        return clean_environment(
            GRAPHILE_WORKER_LIBRARY=self._programs.node.library.as_uri(),
            PYTHONPATH=os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            TZ="UTC",
        )
