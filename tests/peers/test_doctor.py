"""The doctor on a schema that the runtimes have installed in every order."""

from __future__ import annotations

import pytest

from graphile_worker.config import resolve_settings
from graphile_worker.diagnostics.examine import examine
from graphile_worker.diagnostics.schema_checks import SHARED_FUNCTIONS
from peers.directions import ORDERS
from peers.protocol import RUST, Peers

ABOUT_THE_SCHEMA = ("schema", "functions", "indexes", "rights")


@pytest.mark.parametrize("order", ORDERS, ids=" then ".join)
async def test_it_knows_what_stands_there_and_advises_nothing(
    empty_peers: Peers, order: tuple[str, str, str]
) -> None:
    """Whose revisions and functions these are; after Rust, that its functions stay."""
    for position, runtime in enumerate(order):
        await (await empty_peers.start(runtime)).call("migrate")
        has_rust = RUST in order[: position + 1]
        findings = [
            each
            for each in await examine(resolve_settings({"connection_string": empty_peers.url}, {}))
            if each.check in ABOUT_THE_SCHEMA
        ]
        said = "\n".join(f"{each.severity} {each.check}: {each.summary}. {each.advice}" for each in findings)
        assert {each.severity for each in findings if each.check != "schema"} <= {"ok", "info"}, said
        assert "unknown" not in said
        functions = [each for each in findings if each.check == "functions"]
        named = ", ".join(each.summary for each in functions)
        assert all(name in named for name in SHARED_FUNCTIONS), said
        if "python" in {name.lower() for name in order[: position + 1]}:
            (schema,) = [each for each in findings if each.check == "schema"]
            assert schema.severity == "ok", said
            revisions = "revision 22 (21 and 22 of Rust)" if has_rust else "revision 20"
            assert schema.summary.endswith(revisions), said
        if has_rust:
            assert "as Rust 0.14 installs them" in named, said
            advice = {each.advice for each in functions if each.severity == "info"}
            assert all("Do not replace them" in each for each in advice), said
