"""The first project: its README, and its files for Docker, systemd and Kubernetes, without any of these."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import uvicorn
import yaml

from cli.typing_commands import parse
from docs.blocks import ROOT
from graphile_worker.runner.process.probes import PATHS
from graphile_worker.values.options import WorkerOptions
from support.dockerfile import read_instructions
from support.ports import unused_port
from support.programs import needed
from support.worker_process import WorkerProcess
from support.working import until

PROJECT = ROOT / "examples" / "first_project"
OURS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONFIGURATION = tomllib.loads((PROJECT / "pyproject.toml").read_text())
DOCKERFILE = read_instructions((PROJECT / "Dockerfile").read_text())
COMPOSE = yaml.safe_load((PROJECT / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
UNITS = sorted(PROJECT.glob("deploy/systemd/*.service"))
MANIFESTS = {
    f"{path.stem}/{document['kind']}": document
    for path in sorted(PROJECT.glob("deploy/kubernetes/[!k]*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
}
ENVIRONMENT = "/srv/club/.venv/bin/"
GRACE = WorkerOptions().grace


def unit_of(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def containers_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    template = manifest.get("spec", {}).get("template", {})
    found: list[dict[str, Any]] = template.get("spec", {}).get("containers", [])
    return found


# -- commands -----------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of the files, with where it is."""
    instructions = dict(DOCKERFILE)
    yield "Dockerfile", json.loads(instructions["CMD"])
    for name, service in SERVICES.items():
        if "command" in service:
            yield f"compose.yaml, {name}", service["command"]
        if "healthcheck" in service:
            how, *words = service["healthcheck"]["test"]
            assert how == "CMD"
            yield f"compose.yaml, health of {name}", words
    for path in UNITS:
        for key, line in unit_of(path)["Service"].items():
            if key.startswith("Exec"):
                yield f"{path.name}, {key}", shlex.split(line.removeprefix(ENVIRONMENT))
    for name, manifest in MANIFESTS.items():
        for container in containers_of(manifest):
            yield name, container["command"]


COMMANDS = list(commands())


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_every_command_is_valid(where: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    match words:
        case ["graphile-worker", *arguments]:
            parse(arguments)
        case ["uvicorn", target, *arguments]:
            uvicorn.main.make_context("uvicorn", [target, *arguments])
            module, _, name = target.partition(":")
            monkeypatch.syspath_prepend(str(PROJECT))
            assert hasattr(import_module(module), name)
        case ["python", "-m", "club.database"]:
            assert "__main__" in (PROJECT / "club" / "database.py").read_text()
        case ["pg_isready", "--username", user]:
            assert user == SERVICES["db"]["environment"]["POSTGRES_USER"]
        case ["/bin/kill", "-HUP", "$MAINPID"]:
            pass
        case other:
            pytest.fail(f"{where}: unknown kind of command: {other}")


# -- Docker -------------------------------------------------------------------------------------------------


def all_of(keyword: str) -> list[str]:
    return [rest for name, rest in DOCKERFILE if name == keyword]


def test_the_image_has_what_it_needs_and_nothing_else() -> None:
    ignored = (PROJECT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    copied = [source for rest in all_of("COPY") for source in rest.split()[:-1]]
    assert {f"!{source}" for source in copied} == set(ignored[1:]) - {"**/__pycache__"}
    assert all((PROJECT / source).exists() for source in copied)
    (base,) = all_of("FROM")
    (version,) = re.findall(r"python:(3\.\d+)-slim", base)
    assert f"Programming Language :: Python :: {version}" in OURS["classifiers"]


def test_the_image_does_not_run_as_root_and_stops_gracefully() -> None:
    (number,) = all_of("USER")  # Kubernetes cannot check a name
    assert re.search(rf"useradd .*--uid {int(number)} club$", " ".join(all_of("RUN")[:1]))
    assert int(number) > 0
    order = [name for name, _ in DOCKERFILE]
    assert order.index("USER") > max(index for index, name in enumerate(order) if name == "RUN")
    (number,) = all_of("STOPSIGNAL")
    assert signal.Signals[number] is signal.SIGTERM


def test_the_project_asks_for_extras_that_exist() -> None:
    wanted = [*CONFIGURATION["project"]["dependencies"], *CONFIGURATION["dependency-groups"]["dev"]]
    extras = {
        extra for each in wanted for found in re.findall(r"^graphile-worker\[(.+)\]", each)
        for extra in found.split(",")
    }  # fmt: skip
    assert extras <= set(OURS["optional-dependencies"])


def test_services_wait_for_each_other_and_have_time_to_stop() -> None:
    for name, service in SERVICES.items():
        assert "image" in service, name
        for other, how in service.get("depends_on", {}).items():
            has_health = "healthcheck" in SERVICES[other]
            assert how["condition"] == ("service_healthy" if has_health else "service_completed_successfully")
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert SERVICES["migrate"]["restart"] == "no"
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) >= GRACE + 10
    for name in ("migrate", "web", "worker", "dashboard"):
        assert "DATABASE_URL" in SERVICES[name]["environment"]


def test_no_secret_has_a_default() -> None:
    text = (PROJECT / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)(.*?)\}", text)) == {
        ("POSTGRES_PASSWORD", ":?"),
        ("ADMIN_PASSWORD", ":?"),
    }


async def test_the_commands_of_the_compose_file_work_together(example: Any) -> None:
    port, health, admin = (str(unused_port()) for _ in range(3))
    settings = example.environment | {"GRAPHILE_WORKER_ADMIN_PASSWORD": "open sesame"}

    def words(service: str) -> list[str]:
        found = [re.sub(r"\b8000\b", port, word) for word in SERVICES[service]["command"]]
        found = [word.replace("8080", health).replace("5678", admin) for word in found]
        return [str(Path(sys.executable).parent / found[0]), *found[1:]]

    subprocess.run(words("migrate"), cwd=example.folder, env=settings, check=True, timeout=120)
    started = {
        name: WorkerProcess(words(name), folder=example.folder, environment=settings)
        for name in ("web", "worker", "dashboard")
    }
    try:
        started["worker"].ready()
        async with httpx.AsyncClient() as client:

            async def status(url: str) -> int:
                try:
                    return (await client.get(url)).status_code
                except httpx.TransportError:
                    return 0

            await until(lambda: is_200(status(f"http://127.0.0.1:{port}/docs")))
            await until(lambda: is_200(status(f"http://localhost:{admin}/login")))
            await until(lambda: is_200(status(f"http://127.0.0.1:{health}/readyz")))
            member = {"name": "Ada", "email": "ada@example.com"}
            assert (await client.post(f"http://127.0.0.1:{port}/members", json=member)).status_code == 201
        started["worker"].wait_for("e-mail to ada@example.com: Welcome, Ada!")
        check = [word.replace("8080", health) for word in SERVICES["worker"]["healthcheck"]["test"][2:]]
        command = [sys.executable, "-m", "graphile_worker", *check]
        subprocess.run(command, cwd=example.folder, env=settings, check=True, timeout=60)
        for process in started.values():
            process.send(signal.SIGTERM)
        assert started["worker"].ended() == 143
    finally:
        for process in started.values():
            process.close()


async def is_200(status: Any) -> bool:
    return bool(await status == 200)


# -- the README ---------------------------------------------------------------------------------------------


async def test_the_readme(example: Any) -> None:
    subprocess.run(
        [sys.executable, "-m", "club.database"],
        cwd=example.folder, env=example.environment, check=True, timeout=120,
    )  # fmt: skip
    assert "Added job 1: send_welcome" in example.run()
    assert "4 passed" in example.run(timeout=240)
    assert example.is_done


# -- systemd ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_as_a_user_and_is_started_again(path: Path) -> None:
    service = unit_of(path)["Service"]
    assert service["User"] != "root"
    assert service["Restart"] == "always"
    assert service["ExecStart"].startswith(ENVIRONMENT)
    assert ENVIRONMENT.startswith(service["WorkingDirectory"])


def test_the_unit_of_the_worker_waits_until_it_has_stopped() -> None:
    service = unit_of(PROJECT / "deploy" / "systemd" / "club-worker.service")["Service"]
    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) >= GRACE + 10
    assert int(service["TimeoutStartSec"]) > 60  # it may wait so long for the database


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    verify = needed("systemd-analyze")
    for path in UNITS:
        # The paths of programs and folders of this machine, and a user that it has.
        text = re.sub(rf"{ENVIRONMENT}\S+", "/bin/true", path.read_text())
        text = text.replace("User=club", "User=root").replace("/srv/club", "/")
        (tmp_path / path.name).write_text(text)
    names = [str(tmp_path / path.name) for path in UNITS]
    done = subprocess.run([verify, "verify", "--man=no", *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "club" in line]


# -- Kubernetes ---------------------------------------------------------------------------------------------


WORKER = MANIFESTS["worker/Deployment"]
POD = WORKER["spec"]["template"]["spec"]


def test_every_manifest_is_listed() -> None:
    folder = PROJECT / "deploy" / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    listed = set(kustomization["resources"]) | {"kustomization.yaml", "scaling-prometheus.yaml"}
    assert listed == {path.name for path in folder.iterdir()}
    for name, manifest in MANIFESTS.items():
        assert set(manifest) >= {"apiVersion", "kind", "metadata", "spec"}, name


def test_selectors_match() -> None:
    for name in ("web", "worker"):
        spec = MANIFESTS[f"{name}/Deployment"]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    labels = WORKER["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["worker/PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    web = MANIFESTS["web/Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["web/Service"]["spec"]["selector"] == web


def test_all_pods_run_one_image() -> None:
    images = {each["image"] for manifest in MANIFESTS.values() for each in containers_of(manifest)}
    assert len(images) == 1


def test_probes_ask_for_what_a_worker_answers() -> None:
    (container,) = POD["containers"]
    (port,) = container["ports"]
    command = container["command"]
    assert command[command.index("--http-port") + 1] == str(port["containerPort"])
    paths = {}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container[probe]["httpGet"]
        assert request["port"] == port["name"]
        paths[probe] = request["path"]
    assert paths["livenessProbe"] == "/livez"
    assert set(paths.values()) <= set(PATHS)
    assert POD["terminationGracePeriodSeconds"] >= GRACE + 10


def test_keda_scales_the_worker() -> None:
    assert "replicas" not in WORKER["spec"]  # each `apply` would undo what KEDA has set
    for name in ("scaling", "scaling-prometheus"):
        spec = MANIFESTS[f"{name}/ScaledObject"]["spec"]
        assert spec["scaleTargetRef"]["name"] == WORKER["metadata"]["name"]
        assert spec["minReplicaCount"] >= 1  # recurring jobs are added by workers
    (trigger,) = MANIFESTS["scaling/ScaledObject"]["spec"]["triggers"]
    credentials = MANIFESTS["scaling/TriggerAuthentication"]["metadata"]["name"]
    assert trigger["authenticationRef"]["name"] == credentials


async def test_the_query_of_keda_counts_ready_jobs(database_url: str) -> None:
    spec = MANIFESTS["scaling/ScaledObject"]["spec"]
    (trigger,) = spec["triggers"]
    (bound,) = re.findall(r"\((\d+)\)", trigger["metadata"]["query"])
    assert int(bound) > int(trigger["metadata"]["targetQueryValue"]) * spec["maxReplicaCount"]
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("select graphile_worker.add_job('send_welcome', '{}')")
        assert await connection.fetchval(trigger["metadata"]["query"]) == 1
    finally:
        await connection.close()


def test_the_metric_of_keda_exists() -> None:
    (trigger,) = MANIFESTS["scaling-prometheus/ScaledObject"]["spec"]["triggers"]
    (metric,) = re.findall(r"graphile_worker_\w+", trigger["metadata"]["query"])
    assert f"| `{metric}` | gauge |" in (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert "--database-metrics" in POD["containers"][0]["command"]


def test_kustomize_builds_the_manifests() -> None:
    kubectl = needed("kubectl")
    folder = PROJECT / "deploy" / "kubernetes"
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert {each["metadata"]["namespace"] for each in built} == {"club"}
