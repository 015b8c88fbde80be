"""The documentation builds into a site, with broken links and forgotten pages as errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.blocks import ROOT

pytestmark = pytest.mark.timeout(1200)  # it runs programs that may take minutes


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").is_file()
