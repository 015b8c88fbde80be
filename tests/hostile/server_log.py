"""Parse trees from the log of a server, whichever program sent the statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SETTINGS = {
    "debug_print_parse": "on",
    "debug_pretty_print": "off",
    "log_line_prefix": "@@%p|%d|%a@@ ",
    "log_error_verbosity": "default",
    "log_min_error_statement": "error",
}
"""Settings of a server that writes the tree of each statement to its log."""

_LINE = re.compile(r"@@(\d+)\|([^|@]*)\|(.*?)@@ (LOG|DETAIL|CONTEXT|STATEMENT|[A-Z]+):  ?")


@dataclass
class Message:
    """One message, with its parts by name."""

    database: str
    application: str
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> str | None:
        return self.parts.get("DETAIL") if self.parts.get("LOG", "").strip() == "parse tree:" else None


def messages(log: str) -> Iterator[Message]:
    """The messages of a log, in order of their beginnings."""
    begun: dict[str, Message] = {}
    found = list(_LINE.finditer(log))
    for nth, head in enumerate(found):
        end = found[nth + 1].start() if nth + 1 < len(found) else len(log)
        # Further lines of a part begin with a tab that the server adds.
        text = log[head.end() : end].removesuffix("\n").replace("\n\t", "\n")
        process, database, application, part = head.groups()
        if part not in ("DETAIL", "CONTEXT", "STATEMENT", "HINT", "QUERY", "LOCATION"):
            if process in begun:
                yield begun.pop(process)
            begun[process] = Message(database, application)
        if process in begun:
            begun[process].parts[part] = text
    yield from begun.values()
