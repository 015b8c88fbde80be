"""An error in this package must not fail a job or an add."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("graphile_worker.contrib")

_logged: set[tuple[type, str]] = set()


@contextmanager
def guarded() -> Iterator[None]:
    """Log an error, once for each kind, and go on behind the block."""
    try:
        yield
    except Exception as error:
        kind = (type(error), str(error)[:200])
        if kind not in _logged and len(_logged) < 100:
            _logged.add(kind)
            logger.exception("reporting to Sentry failed; this error is logged once")
