"""The programs of the peers, which the first test of a machine installs and builds."""

from __future__ import annotations

from peers.protocol import Programs


def test_they_can_be_had(programs: Programs) -> None:
    assert programs.rust.exists()
    assert programs.node.binary.exists()
