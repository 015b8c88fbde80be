"""Adds the rows of a CSV file as batch jobs: `python add_file.py people.csv`."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import Iterator
from itertools import islice

from tasks.import_people import Person, import_people

from graphile_worker import JobSpec, make_worker_utils

ROWS_PER_JOB = 100


def batches(path: str) -> Iterator[list[Person]]:
    with open(path, newline="") as file:
        rows = (Person(name=row["name"], born=row["born"]) for row in csv.DictReader(file))
        while batch := list(islice(rows, ROWS_PER_JOB)):
            yield batch


async def main(path: str) -> None:
    async with make_worker_utils() as utils:
        await utils.migrate()
        jobs = await utils.add_jobs([JobSpec(import_people, batch) for batch in batches(path)])
    print(f"added {len(jobs)} job(s)")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
