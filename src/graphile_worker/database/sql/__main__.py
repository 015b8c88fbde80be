"""`python -m graphile_worker.database.sql`: prints a statement as it is sent, or the names of all."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches

from ...errors import ConfigError
from ...values.schema_name import SchemaName
from . import load, names


def main(arguments: list[str] | None = None) -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m graphile_worker.database.sql",
        description="Print a statement of this package as it is sent to the server, or the names of all.",
    )
    parser.add_argument("name", nargs="?", help="such as fetch/get_jobs or fetch/get_jobs@wide")
    parser.add_argument("--schema", default=SchemaName().name, help="default: %(default)s")
    given = parser.parse_args(arguments)
    if given.name is None:
        sys.stdout.writelines(f"{name}\n" for name in names())
        return
    try:
        text = load(given.name, SchemaName(given.schema))
    except LookupError as error:
        close = get_close_matches(given.name, names(), 3, 0.5)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        sys.exit(f"{error}{hint}")
    except ConfigError as error:
        sys.exit(str(error))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
