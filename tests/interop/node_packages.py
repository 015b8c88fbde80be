"""Node.js and the real Graphile Worker, installed once by package name into a cache folder.

Where npm is missing or cannot reach its registry, the tests that ask for these packages are skipped and say
why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import npm_packages
from support.programs import needed

CACHE_VARIABLE = "TEST_NODE_CACHE"

# Releases side by side: the one we interoperate with, and older ones for the schemas they leave behind.
CURRENT = "graphile-worker"
ENDS_AT_19 = "graphile-worker-0.17"
ENDS_AT_18 = "graphile-worker-0.16"
ENDS_AT_14 = "graphile-worker-0.15"
PACKAGES = {
    CURRENT: "~0.18.0",
    ENDS_AT_19: "npm:graphile-worker@0.17.3",
    ENDS_AT_18: "npm:graphile-worker@0.16.6",
    ENDS_AT_14: "npm:graphile-worker@0.15.1",
    "node": "24",  # 0.18 needs 22.18 or later, which a system's own Node.js often is not
}


@dataclass(frozen=True)
class NodePackages:
    """An installed folder: the `node` binary and the packages beside it."""

    folder: Path

    @property
    def binary(self) -> Path:
        return self.folder / "node_modules" / ".bin" / "node"

    def command_line(self, package: str = CURRENT) -> Path:
        """The script behind the command `graphile-worker` of that release."""
        return self.folder / "node_modules" / package / "dist" / "cli.js"

    @property
    def library(self) -> Path:
        """What `import` takes to load the current release."""
        return self.folder / "node_modules" / CURRENT / "dist" / "index.js"


def provide() -> NodePackages:
    """The packages from the cache, installed first if this is the first time."""
    cache = npm_packages.cache_folder(CACHE_VARIABLE, "node")
    try:
        # The package "node" brings its binary in an install script.
        folder = npm_packages.provide(
            lambda: needed("npm"), cache, PACKAGES, brings=".bin/node", scripts=True
        )
    except npm_packages.OutOfReachError as error:
        pytest.skip(str(error))
    except RuntimeError as error:
        pytest.fail(str(error), pytrace=False)
    return NodePackages(folder)
