"""The Rust peer, built once by cargo from the crates that `rust/Cargo.toml` names.

What was built stays in a cache folder, so only the first run takes minutes. Where cargo is missing, too old
or cannot reach its registry, the tests that ask for the program are skipped and say why.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripts.npm_packages import cache_folder

from support.programs import needed

CACHE_VARIABLE = "TEST_CARGO_CACHE"
PROJECT = Path(__file__).parent / "rust"
PEER, BENCH = "peer", "bench"
"""The peer of these tests, and the one of `benchmarks.peers`."""
PROFILES = {PEER: "debug", BENCH: "release"}
"""How they are built: optimizing takes longer than the tests gain by it."""
SOURCES = ("Cargo.toml", "Cargo.lock", "src/main.rs", "src/bin/bench.rs")
BUILD_SECONDS = 3600
UNREACHABLE = re.compile(
    r"failed to (?:download|query|fetch|get|connect)[^\n]*|Could not resolve host[^\n]*"
    r"|spurious network error[^\n]*|unable to update registry[^\n]*"
)
TOO_OLD = re.compile(
    r"requires rustc[^\n]*|rustc [\d.]+ is not supported[^\n]*|feature `edition2024` is required"
    r"|does not understand this lock file"
)


def provide(name: str = PEER) -> Path:
    """The program, from the cache if it was built before."""
    program = path(name)
    if not program.exists():
        cargo = needed("cargo")
        with _exclusive(program.with_name("build.lock")):
            if not program.exists():
                _build(cargo, name)
    return program


def path(name: str = PEER) -> Path:
    """Where the program is, or will be when it is built."""
    content = b"\0".join((PROJECT / name).read_bytes() for name in SOURCES)
    digest = hashlib.sha256(content).hexdigest()[:12]
    return cache_folder(CACHE_VARIABLE, "cargo") / f"{name}-{digest}"


def _build(cargo: str, name: str) -> None:
    program, profile = path(name), PROFILES[name]
    target = program.with_name("target")
    command = [cargo, "build", "--locked", "--manifest-path", str(PROJECT / "Cargo.toml"), "--bin", name]
    command += ["--target-dir", str(target), "--config", "net.retry=1"]
    if profile == "release":
        command.append("--release")
    if jobs := os.environ.get("CARGO_BUILD_JOBS"):
        command += ["--jobs", jobs]
    try:
        built = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"cargo did not build the Rust peer within {BUILD_SECONDS} seconds")
    if built.returncode != 0:
        if reason := UNREACHABLE.search(built.stdout):
            pytest.skip(f"cargo cannot reach its registry ({reason.group()})")
        if reason := TOO_OLD.search(built.stdout):
            pytest.skip(f"cargo is too old for the crates of the Rust peer ({reason.group()})")
        pytest.fail(f"cargo could not build the Rust peer:\n{built.stdout}", pytrace=False)
    unfinished = program.with_suffix(".new")
    shutil.copy2(target / profile / name, unfinished)
    unfinished.rename(program)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold the file's lock: of several runs one builds, the others wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
