"""Words of the frame and of the browser's part, in one place."""

from __future__ import annotations

from typing import Final

NAVIGATION: Final = (
    ("overview", "Overview", "/", "o"),
    ("jobs", "Jobs", "/jobs", "j"),
    ("failures", "Failures", "/failures", "f"),
    ("tasks", "Tasks", "/tasks", "t"),
    ("queues", "Queues", "/queues", "q"),
    ("workers", "Workers", "/workers", "w"),
    ("schedules", "Schedules", "/schedules", "s"),
    ("operations", "Operations", "/operations", "p"),
    ("doctor", "Doctor", "/doctor", "d"),
    ("audit", "Audit", "/audit", "a"),
)
"""Name, label, path, and the key after `g`."""
NAVIGATION_BREAK: Final = "doctor"
"""A line separates this entry and those after it from the rest."""
ON_PHONES: Final = ("overview", "jobs", "failures", "workers")
"""Entries in the bar of a phone; the others are behind More."""
STALE_AFTER: Final = 20
"""Seconds without an event after which a page says that the dashboard does not answer."""

KEYS: Final = (
    (
        "Everywhere",
        (
            ("/", "Search"),
            ("Ctrl K", "Commands: go to a page, task, queue or job; run an action of this page"),
            ("g, then o j f t q w s p d a", "Go to a page by its first letter; o is Overview, p Operations"),
            ("t", "Times in UTC or in your time zone"),
            ("?", "This help"),
            ("Esc", "Close"),
        ),
    ),
    (
        "In a list",
        (
            ("j k", "Next and previous row"),
            ("x", "Select the row; Shift selects a range"),
            ("Enter", "Open the row"),
            ("n p", "Next and previous page"),
        ),
    ),
    (
        "On a job or a selection",
        (
            ("r", "Retry or run now, after a confirmation"),
            ("e", "Reschedule"),
            (".", "More actions"),
        ),
    ),
)  # fmt: skip
"""Keys and what they do, as the help lists them."""

ENVIRONMENT_TONES: Final = {
    "production": "bad", "prod": "bad", "live": "bad",
    "staging": "warn", "stage": "warn", "preproduction": "warn", "preprod": "warn", "uat": "warn",
}  # fmt: skip

SCRIPT: Final = {
    "live": "live",
    "polling": "every 5 s",
    "stopped": "stopped",
    "offline": "no answer",
    "connecting": "connecting",
    "down": "The database does not answer. The page shows the state of {time}.",
    "unreachable": "The dashboard does not answer. The page shows the state of {time}.",
    "new_rows": "{n} new – show",
    "copied": "Copied",
    "copy_failed": "Copying is not possible here: select the text instead",
    "selected": "{n} selected",
    "page": "Page",
    "action": "Action",
    "task": "Task",
    "queue": "Queue",
    "worker": "Worker",
    "schedule": "Schedule",
    "job": "Job",
    "search": "Search",
    "nothing": "Nothing found",
    "failed": "That did not work: {why}",
    "local": "Times in {zone}",
    "typed_time": "That is {time}.",
    "unknown": "unknown",
    "columns": "Columns",
    "saved_filters": "Saved filters",
    "save_filter": "Save this filter",
    "forget_filter": "Forget this filter",
    "filter_name": "Name",
    "no_filters": "Filter the list first, then save the filter here.",
    "save": "Save",
    "cancel": "Cancel",
    "keys": "Keyboard",
    "keys_on": "Keys without Ctrl are on",
    "commands": "Go to a page, task, queue, worker, schedule or job, or run an action",
}
"""What the ES modules say. `{…}` is filled in there."""
