"""A client of the worker's HTTP server, as a probe of Kubernetes or Prometheus is one."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from support.worker_process import WorkerProcess
from support.working import PATIENCE

AT = "serving health checks and metrics at "


class Probe(NamedTuple):
    """What came back."""

    status: int
    body: Any

    @property
    def problems(self) -> str:
        """All of them in one text."""
        return "; ".join(self.body["problems"])


def address_of(process: WorkerProcess) -> str:
    """Where a process serves, once it does."""
    output = process.wait_for(AT).output
    found = re.search(rf"{AT}http://0\.0\.0\.0:(\d+)", output)
    assert found is not None, output
    return f"http://127.0.0.1:{found[1]}"


def port_of(process: WorkerProcess) -> str:
    """The port on which a process serves, once it does."""
    return address_of(process).rpartition(":")[2]


async def probe(address: str, path: str) -> Probe:
    """A request that never waits for long."""
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        response = await client.get(address + path)
    return Probe(response.status_code, json.loads(response.text))


async def scrape(address: str) -> dict[str, float]:
    """The metrics of this package by name and labels, read by the official parser."""
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        response = await client.get(f"{address}/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return values_in(response.text)


def values_in(text: str) -> dict[str, float]:
    """The metrics of this package in a text, such as `jobs_total{outcome="success",task="hello"}`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("graphile_worker_"):
                name = sample.name.removeprefix("graphile_worker_")
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found[f"{name}[{labels}]" if labels else name] = sample.value
    return found
