"""Tasks that start processes which start others."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from executors.trees import plant_tree
from graphile_worker import task


@task(executor="process", max_attempts=2)
def plant(payload: dict[str, Any]) -> None:
    plant_tree(payload)


@task(executor="process", max_attempts=2)
async def plant_and_wait(payload: dict[str, Any]) -> None:
    await asyncio.to_thread(plant_tree, {**payload, "returns": True})
    if not Path(payload["file"]).with_name("second").exists():
        await asyncio.sleep(3600)


@task(executor="process")
def say_who(payload: dict[str, Any]) -> None:
    with Path(payload["file"]).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    if payload.get("sleeps"):
        time.sleep(3600)
