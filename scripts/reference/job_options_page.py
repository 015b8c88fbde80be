"""The reference of job options: what each is called on every face, and how it is stored."""

from __future__ import annotations

from graphile_worker.values.job_options import JOB_OPTIONS, Face, JobOption

from .members import cell, text

FACES: dict[Face, str] = {
    "add_job": "Python",
    "task": "`@task`",
    "add": "`graphile-worker add`",
    "lines": "JSON lines",
    "cron": "`CronItem`",
    "crontab": "crontab",
    "dashboard": "dashboard",
    "django": "Django",
}


def page() -> str:
    lines = [
        text("job-options.md"),
        f"| {' | '.join(FACES.values())} |",
        f"|{'---|' * len(FACES)}",
        *(f"| {' | '.join(_name(option, face) for face in FACES)} |" for option in JOB_OPTIONS),
        "",
        "Where there is a dash:",
        "",
        *(
            f"- `{option.name}`, {FACES[face]}: {reason}."
            for option in JOB_OPTIONS
            for face, reason in option.absent.items()
        ),
        "",
        "## What they mean",
        "",
        "| option | meaning | default | stored in |",
        "|---|---|---|---|",
        *(
            f"| `{option.name}` | {cell(option.help)} | {option.default} | `{option.stored}` |"
            for option in JOB_OPTIONS
        ),
    ]
    return "\n".join(lines) + "\n"


def _name(option: JobOption, face: Face) -> str:
    if face in option.absent:
        return "—"
    if face == "add":
        flag = "--" + (option.flag or option.short).replace("_", "-")
        more = {"keep": f", `{flag}-for`", "unique": f", `{flag}-by`"}.get(option.kind, "")
        return f"`{flag}`{more}"
    if face == "crontab":
        return f"`{option.crontab}`"
    if face in ("lines", "dashboard"):
        return f"`{option.short}`"
    return f"`{option.name}`"
