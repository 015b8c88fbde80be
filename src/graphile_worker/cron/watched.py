"""Recurring jobs as watchers of adds see them: each one alone, because other workers may add some of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, copy_context

from ..hooks import AddWatcher
from ..hooks.add_watchers import WatchedAdd
from ..queries.crontabs import CronMinute
from ..spec import CronJob


class WatchedMinutes:
    """The recurring jobs of one or more minutes, while they are added."""

    def __init__(self, watchers: Sequence[AddWatcher], minutes: Sequence[CronMinute]) -> None:
        self._watchers = watchers
        self._adds: list[tuple[CronJob, CronJob, WatchedAdd, Context]] = []
        self.minutes = [
            CronMinute(each.minute, [self._watch(job) for job in each.jobs], each.refused) for each in minutes
        ]
        """With the jobs to send."""

    def _watch(self, job: CronJob) -> CronJob:
        context = copy_context()
        watched = context.run(WatchedAdd, self._watchers, (job,))
        sent = job.with_spec(watched.specs[0])
        self._adds.append((job, sent, watched, context))
        return sent

    def ended(self, added: Sequence[CronJob]) -> list[CronJob]:
        """Tell the watchers which of the sent jobs were added here; returns those as they were before."""
        ours = set(map(id, added))
        for _, sent, watched, context in self._adds:
            context.run(watched.ended, None if id(sent) in ours else ())
        return [job for job, sent, _, _ in self._adds if id(sent) in ours]

    def failed(self, error: BaseException) -> None:
        """Tell the watchers that nothing was added."""
        for _, _, watched, context in self._adds:
            context.run(watched.ended, None, error)
