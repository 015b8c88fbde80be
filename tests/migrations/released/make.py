"""Writes what a released state installs and what its workers say: `schema.sql` and `statements.sql`.

Run it with the Python of a checkout of that state. Before the next release, for the one before it:

    git worktree add --detach ../released COMMIT
    make -C ../released setup
    ../released/.venv/bin/python tests/migrations/released/make.py
    git worktree remove --force ../released
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from graphile_worker.database.migrations import migration_sql
from graphile_worker.database.sql import FOLDER, load, names
from graphile_worker.values.schema_name import SchemaName

HERE = Path(__file__).parent
SUBJECTS = (
    "control", "cron", "fetch", "history", "held", "limits", "recovery", "requests", "session", "write",
)  # fmt: skip
"""What a worker sends while it runs. How it starts and what clients and operators send is left out."""

COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


def main() -> None:
    """Overwrite both files."""
    schema = SchemaName()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=FOLDER, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    head = f"-- {{}} as of {commit}. Written by make.py; never changed by hand.\n\n"
    installed = head.format("What a fresh database gets") + migration_sql(schema)
    (HERE / "schema.sql").write_text(installed)
    wanted = [name for name in names() if name.partition("/")[0] in SUBJECTS and "@" not in name]
    statements = [f"-- statement {name}\n{COMMENT.sub('', load(name, schema)).strip()}\n" for name in wanted]
    (HERE / "statements.sql").write_text(head.format("The statements of a worker") + "\n".join(statements))


if __name__ == "__main__":
    main()
