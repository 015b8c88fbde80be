"""Hub: one sampler for all pages and streams of a database. Without a reader it sends no statement.

    sample = await hub.current()             # for a page; shared by all that ask within a few seconds
    found = await hub.shared("overview", compute)   # a result that many tabs ask for at once
    hub.publish("operation:7", "jobs")       # tell every tab that looks at these

While there are streams, a loop takes samples. It becomes slower by itself when they take long. Changes that
come close together are joined, and a topic is announced once a second at most.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from ...database.connections.errors import explained
from ...hooks.faults import is_our_end, report
from ..answers import Problem
from ..database import Database, is_outage
from ..security.redact import Redactor
from ..settings import Dashboard
from .sampler import Sample, Sampler

logger = logging.getLogger("graphile_worker.admin")

T = TypeVar("T")

INTERVAL = 5.0
"""Seconds between two samples; twice as many while nothing changes."""
SLOW = 0.05
"""Seconds. If a sample takes longer, the interval is `REST` times as long as it took."""
REST = 20
SAMPLE_WITHIN = 10.0  # seconds until a server that does not answer counts as down
LOOK_EVERY = 0.25  # seconds between two looks whether the program is stopping
JOIN = 0.25  # seconds over which changes are joined
TOPIC_EVERY = 1.0  # seconds between two announcements of a topic
CHANGES_EVERY = 15.0  # the same for what workers change all the time
OVERVIEW_EVERY = 20.0  # seconds between two announcements of Overview, which shows minutes
QUIET_OVERVIEW_EVERY = 60.0  # while nothing changes
WATCHED_EVERY = 60.0  # for jobs that are looked at: what they wait for changes while they do not
DOCTOR = "doctor"
"""Under this key the last report of the doctor is kept, for the number beside it."""
MAX_SHARED = 50
"""Results that are kept for others who ask."""
MAX_STREAMS = 100
MAX_STREAMS_OF_USER = 10
PULSE = "jobs:insert"
PULSE_TOPICS = ("jobs", "queues", "tasks")
SAMPLE_TOPICS = ("jobs", "queues", "tasks", "failures", "workers")
"""Announced when the jobs table has changed."""


RETRY = 2000
"""Milliseconds after which a browser connects again."""


class StreamEvent(msgspec.Struct, frozen=True):
    """One event, before it is written."""

    name: str
    data: Any
    id: int

    def encoded(self) -> bytes:
        """As server-sent events are written. JSON has no line breaks."""
        data = msgspec.json.encode(self.data).decode()
        return f"event: {self.name}\nid: {self.id}\ndata: {data}\n\n".encode()


class Stream:
    """The events of one subscriber, in the order in which they first occurred."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._pending: dict[str, StreamEvent] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self.is_closed = False

    def put(self, event: StreamEvent) -> None:
        """Replace the event of the same name that has not been read yet."""
        self._pending[event.name] = event
        self._wake.set()

    def put_changed(self, topics: Iterable[str], id: int) -> None:
        """Say that these topics changed, as far as the subscriber wants to know."""
        wanted = self.topics.intersection(topics)
        if wanted:
            self._changed |= wanted
            self.put(StreamEvent("changed", {"topics": sorted(self._changed)}, id))

    def close(self) -> None:
        """End the stream after what is pending."""
        self.is_closed = True
        self._wake.set()

    async def next(self, timeout: float) -> list[StreamEvent]:
        """What is new; empty after the timeout, or when the stream is closed."""
        if not self._pending and not self.is_closed:
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return []
        self._wake.clear()
        events, self._pending = list(self._pending.values()), {}
        self._changed.clear()
        return events


def is_server_stopping() -> bool:
    """True once uvicorn was asked to stop; False under other servers."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))


class Hub:
    """The live side of one database."""

    def __init__(
        self,
        database: Database,
        *,
        interval: float = INTERVAL,
        is_stopping: Callable[[], bool] = is_server_stopping,
        redactor: Redactor | None = None,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = database
        self._uptime = uptime
        self.redactor = redactor if redactor is not None else Redactor()
        """For results that all users share."""
        self._is_stopping = is_stopping
        self.interval = interval
        self.sampler = Sampler(database)
        self.down_since: float | None = None
        """Unix time since when the database has not answered; None while it does."""
        self._streams: set[Stream] = set()
        self._loop: asyncio.Task[None] | None = None
        self._last_id = 0
        self._duration = 0.0
        self._sampled_at = -1e9
        self._sampling = asyncio.Lock()
        self._shared: dict[str, _Shared] = {}
        self._pending: dict[str, float] = {}
        """Topics, and when they may be announced."""
        self._announced: dict[str, float] = {}
        self._flush: asyncio.TimerHandle | None = None
        self._overview_at = -1e9
        self._watched_at = -1e9
        self._versions: dict[int, str] = {}
        """Of the jobs that are looked at, as announced.

        A job that is new here is announced: it may have changed since its page was made.
        """
        self._is_quiet = False
        """Whether the last two samples were the same, and nothing was heard since."""
        self._is_closed = False

    # -- for pages ---------------------------------------------------------------------------------------

    async def current(self, *, max_age: float | None = None) -> Sample:
        """The latest sample if it is recent, else a new one; the last one if the database is down."""
        max_age = self.pause if max_age is None else max_age
        async with self._sampling:
            if self._uptime() - self._sampled_at < max_age and self.sampler.samples:
                return self.sampler.samples[-1]
            try:
                return await self._sample()
            except Exception:
                if self.sampler.samples:
                    return self.sampler.samples[-1]
                raise

    async def shared(
        self, key: str, compute: Callable[[], Awaitable[T]], *, max_age: float = INTERVAL, topic: str = ""
    ) -> T:
        """The result of `compute`, at most `max_age` seconds old. Those who ask at once share one call.

        It is computed again after a change of `topic` was published: those who acted see what they did.
        If it fails although it worked before, because the database is down, the last result is returned.
        """
        known = self._shared.setdefault(key, _Shared())
        known.topic = topic
        self._forget_shared(key)
        async with known.lock:
            if self._uptime() - known.at < max_age and not known.is_outdated:
                found: T = known.value
                return found
            known.is_outdated = False  # a change during the computation sets it again
            try:
                known.value = await compute()
            except Exception as error:
                if known.at < 0 or not is_outage(error):
                    raise
            else:
                known.at = self._uptime()
            found = known.value
            return found

    def known(self, key: str, *, max_age: float) -> Any | None:
        """The last result under this key, if it is no older than that; nothing is computed."""
        found = self._shared.get(key)
        return None if found is None or self._uptime() - found.at > max_age else found.value

    def _forget_shared(self, wanted: str) -> None:
        """Keep the latest results only: keys hold names that users send."""
        idle = [key for key, known in self._shared.items() if key != wanted and not known.lock.locked()]
        idle.sort(key=lambda key: self._shared[key].at)
        for key in idle[: max(0, len(self._shared) - MAX_SHARED)]:
            del self._shared[key]

    @property
    def pause(self) -> float:
        """Seconds between two samples, longer if they are slow or nothing changes."""
        pause = 2 * self.interval if self._is_quiet else self.interval
        return max(pause, self._duration * REST) if self._duration > SLOW else pause

    # -- for streams -------------------------------------------------------------------------------------

    @property
    def streams(self) -> int:
        """How many there are."""
        return len(self._streams)

    def subscribe(self, topics: Iterable[str], *, last_id: int | None = None) -> Stream:
        """A new stream. Its first event is `hello`; after a lost connection, all topics count as changed."""
        stream = Stream(topics)
        if self._is_closed:
            stream.close()
            return stream
        stream.put(StreamEvent("hello", {"topics": sorted(stream.topics)}, self._last_id))
        if self.down_since is not None:
            stream.put(StreamEvent("down", {"since": self.down_since}, self._last_id))
        if last_id is not None and last_id != self._last_id:
            stream.put_changed(stream.topics, self._last_id)
        self._streams.add(stream)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run(), name="graphile_worker admin hub")
        return stream

    def unsubscribe(self, stream: Stream) -> None:
        """Forget a stream; the sampler stops with the last one."""
        self._streams.discard(stream)
        stream.close()
        if not self._streams and self._loop is not None:
            self._loop.cancel()
            self._loop = None

    def publish(self, *topics: str) -> None:
        """Announce that something about these topics changed, in this process."""
        for known in self._shared.values():
            known.is_outdated |= known.topic in topics
        self._note(topics, TOPIC_EVERY)

    def _note(self, topics: Iterable[str], every: float) -> None:
        """Announce these soon, unless they were announced in the last `every` seconds."""
        if not self._streams or self._is_closed:
            return  # a stream that begins later knows nothing that could be outdated
        now = self._uptime()
        for topic in topics:
            due = max(now + JOIN, self._announced.get(topic, -1e9) + every)
            self._pending[topic] = min(due, self._pending.get(topic, due))
        self._plan(now)

    def _plan(self, now: float) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._pending and self._streams:
            wait = max(min(self._pending.values()) - now, 0.0)
            self._flush = asyncio.get_running_loop().call_later(wait, self._announce)

    async def close(self) -> None:
        """End all streams and the sampler."""
        self._is_closed = True
        self.end_streams()
        if self._flush is not None:
            self._flush.cancel()
        loop, self._loop = self._loop, None
        if loop is not None and not loop.done():
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)

    def end_streams(self) -> None:
        """End all streams, so that a server that is stopping need not wait for them."""
        for stream in list(self._streams):
            stream.close()
        self._streams.clear()

    def _announce(self) -> None:
        """Send what is due, and come back for the rest."""
        self._flush = None
        now = self._uptime()
        self._announced = {topic: at for topic, at in self._announced.items() if now - at < CHANGES_EVERY}
        due = {topic for topic, at in self._pending.items() if at <= now + JOIN}
        if due:
            self._pending = {topic: at for topic, at in self._pending.items() if topic not in due}
            self._announced |= dict.fromkeys(due, now)
            self._last_id += 1
            for stream in self._streams:
                stream.put_changed(due, self._last_id)
        self._plan(now)

    def _send(self, name: str, data: Any, topic: str | None = None) -> None:
        self._last_id += 1
        for stream in self._streams:
            if topic is None or topic in stream.topics:
                stream.put(StreamEvent(name, data, self._last_id))

    # -- the loop ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Take samples while there are streams."""
        listening = asyncio.create_task(self._listen(), name="graphile_worker admin pulse")
        try:
            while self._streams:
                try:
                    await self._sample_for_streams()
                except BaseException as error:
                    if is_our_end(error):
                        raise
                    report(logger, "the dashboard could not take a sample", error=error)
                await self._wait()
        finally:
            self._is_quiet = False
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _wait(self) -> None:
        begin = self._uptime()
        while (rest := begin + self.pause - self._uptime()) > 0:
            await asyncio.sleep(min(rest, LOOK_EVERY))
            if self._is_stopping():
                self.end_streams()
                return

    async def _sample_for_streams(self) -> None:
        before = self.sampler.samples[-1] if self.sampler.samples else None
        try:
            async with self._sampling:
                sample = await self._sample()
        except Exception:
            return  # already logged and announced
        self._send("overview", sample, "overview")
        if before is not None and before.counters != sample.counters:
            self._note(SAMPLE_TOPICS, CHANGES_EVERY)
        if before is None or _facts(before) != _facts(sample):
            self._note(("workers",), CHANGES_EVERY)
        self._is_quiet = before is not None and _state(before) == _state(sample)
        every = QUIET_OVERVIEW_EVERY if self._is_quiet else OVERVIEW_EVERY
        if self._uptime() - self._overview_at >= every:
            self._overview_at = self._uptime()
            self.publish("overview")
        if not self._is_quiet and self._uptime() - self._watched_at >= WATCHED_EVERY:
            self._watched_at = self._uptime()
            self.publish(*(f"job:{id}" for id in self._watched_jobs()))

    async def _sample(self) -> Sample:
        """Take a sample, and note whether the database answers."""
        begin = self._uptime()
        try:
            async with asyncio.timeout(SAMPLE_WITHIN):
                sample = await self.sampler.take(self._watched_jobs())
        except Exception as error:
            self._went_down(error)
            raise
        self._sampled_at = self._uptime()
        self._duration = self._sampled_at - begin
        if self.down_since is not None:
            logger.info("the database answers again")
            self.down_since = None
            self._send("up", {})
            self.publish(*{topic for stream in self._streams for topic in stream.topics})
        before, self._versions = self._versions, self.sampler.versions
        changed = {id for id, _ in before.items() ^ self._versions.items()}
        self.publish(*(f"job:{id}" for id in changed))
        return sample

    def _watched_jobs(self) -> list[int]:
        """The ids in topics such as `job:123`."""
        topics = {topic for stream in self._streams for topic in stream.topics if topic.startswith("job:")}
        return sorted(int(topic[4:]) for topic in topics)

    def _went_down(self, error: Exception) -> None:
        if self.down_since is None:
            self.down_since = time.time()
            logger.warning("the dashboard cannot take a sample: %s", explained(error))
            self._send("down", {"since": self.down_since})

    async def _listen(self) -> None:
        """Hear of new jobs, where the connection can; samples notice them too, a little later."""
        while True:
            try:
                async with self.database.listening(PULSE, lambda *_: self._hear()) as lost:
                    await lost.wait()
            except Exception as error:
                logger.debug("no notifications of new jobs: %s", explained(error))
            await asyncio.sleep(self.pause)

    def _hear(self) -> None:
        """A job was added."""
        self._is_quiet = False
        self._note(PULSE_TOPICS, CHANGES_EVERY)


class _Shared:
    """A result that many ask for."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.at = -1e9
        self.value: Any = None
        self.topic = ""
        self.is_outdated = False


def _facts(sample: Sample) -> tuple[object, ...]:
    return sample.workers, sample.unreachable, sample.slots, sample.running


def _state(sample: Sample) -> tuple[object, ...]:
    return sample.counters, sample.ready, sample.scheduled, sample.failed, *_facts(sample)


class Hubs:
    """The hubs of all databases of one application, and the limits that their streams share."""

    def __init__(
        self, databases: Iterable[Database], is_stopping: Callable[[], bool], redactor: Redactor
    ) -> None:
        self._hubs = {
            id(database): Hub(database, is_stopping=is_stopping, redactor=redactor) for database in databases
        }
        self._users: Counter[str] = Counter()
        self._open: dict[int, tuple[Hub, str]] = {}

    def of(self, database: Database) -> Hub:
        """The hub of a database."""
        return self._hubs[id(database)]

    def stream(
        self, database: Database, topics: Iterable[str], *, user: str, last_id: int | None = None
    ) -> Stream:
        """A stream for a user, to be ended by `end`; raises a problem if there are too many."""
        if self._users.total() >= MAX_STREAMS or self._users[user] >= MAX_STREAMS_OF_USER:
            raise Problem(429, "There are too many live updates", "Close some tabs, or reload pages by hand.")
        hub = self.of(database)
        stream = hub.subscribe(topics, last_id=last_id)
        self._users[user] += 1
        self._open[id(stream)] = hub, user
        return stream

    def end(self, stream: Stream) -> None:
        """End a stream; it does not matter if that was done before."""
        hub, user = self._open.pop(id(stream), (None, ""))
        if hub is None:
            return
        hub.unsubscribe(stream)
        self._users[user] -= 1
        if not self._users[user]:
            del self._users[user]

    async def aclose(self) -> None:
        """End all streams and samplers."""
        for hub in self._hubs.values():
            await hub.close()


def hubs_of(app: Dashboard) -> Hubs:
    """The hubs of an application, made at the first call."""

    def is_stopping() -> bool:
        return app.stopping.is_set() or is_server_stopping()

    return app.shared("hubs", lambda: Hubs(app.databases, is_stopping, app.settings.redactor))
