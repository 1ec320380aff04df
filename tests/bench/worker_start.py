"""Start of a worker, from its process to its first poll, by the clock and in CPU time; and the sizes of its images."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench import worker_peers
from tests.bench.table import Row, at_most
from tests.bench.worker_processes import ARN, Cores, cores, cpu_seconds, running, server
from tests.cluster import catalogue, images
from tests.cluster.lifecycle import uses_kind
from tests.cluster.shell import MissingError
from tests.eventually import eventually_sync
from tests.integration.worker.role_service import RoleService, serving
from tests.servers.ports import free_port

ROUNDS = 7
#: Half of what a start took on an idle machine before libraries were imported by need (commit 3a904a4). Machines vary;
#: `worker_start_before` compares with that commit in turns.
GOAL = 0.223
IN_POD, BOTO3 = "in a pod", "a loop on boto3"
#: Ways to the keys of a pod's role.
ROLES = ("web identity", "pod identity")
#: Variables of the keys that all others have.
NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": "/nonexistent"}
HERE = Path(__file__).parent
WORKER = (
    *(sys.executable, "-m", "activity_worker", "run", "tests.bench.worker_handlers:noop"),
    *("--activity-arn", ARN, "--endpoint-url", "URL"),
)


def run() -> list[Row]:
    """Start workers and peers in turns, and return the rows."""
    where, peer = cores(), worker_peers.interpreter()
    loop = (peer, "-P", HERE / "worker_peer_boto3.py", "URL", ARN, "1")
    # Where the bytecode is not written yet, the first start of each compiles it; an image has it.
    for command in (WORKER, loop):
        start(command, where)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in ("worker", IN_POD, BOTO3, *ROLES)}
    with tempfile.TemporaryDirectory() as folder, serving(RoleService(Path(folder) / "token")) as service:
        for _ in range(ROUNDS):
            measured["worker"].append(start(WORKER, where))
            measured[IN_POD].append(start((*WORKER, "--health-port", str(free_port())), where))
            measured[BOTO3].append(start(loop, where))
            for role in ROLES:
                measured[role].append(start(WORKER, where, {**NO_KEYS, **service.variables(role)}))
    how = (
        f"activity-worker run, one slot, a no-op handler in a process of its own; median of {ROUNDS} in turns, {where}"
    )
    clock, used = (median(values) for values in zip(*measured["worker"], strict=True))
    peer_clock, peer_used = (f"{BOTO3}: {median(values):.2f} s" for values in zip(*measured[BOTO3], strict=True))
    return [
        Row("start of a worker: until its first poll", f"{clock:.2f} s", peer_clock, how=how),
        at_most("start of a worker: CPU time until then", used, GOAL, unit="s", peer=peer_used, how="the same runs"),
        at_most(
            "start of a worker with a health port, as in a pod: CPU time until then",
            median(seconds for _, seconds in measured[IN_POD]),
            GOAL,
            unit="s",
            peer=peer_used,
            how="in turns with the others; keys by variables",
        ),
        *(
            at_most(
                f"start of a worker with the keys of a role by {role}: CPU time until then",
                median(seconds for _, seconds in measured[role]),
                GOAL,
                unit="s",
                peer=peer_used,
                how="in turns with the others",
            )
            for role in ROLES
        ),
        *_image_rows(),
    ]


def _image_rows() -> list[Row]:
    """Return the sizes of the images that are built; with Docker there are no archives to measure."""
    if uses_kind():
        return []
    rows = []
    for name, recipe in {"whole": catalogue.worker(), "slim": catalogue.slim_worker()}.items():
        what = f"image of the worker, {name}"
        try:
            size = images.find(recipe).stat().st_size / 1e6
        except MissingError:
            rows.append(Row(what, "not built", how="`make prepare` builds it"))
        else:
            rows.append(Row(what, f"{size:.0f} MB", how="its archive, uncompressed, with Debian's base"))
    return rows


def start(
    command: Sequence[str | Path], where: Cores, environment: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Start a worker; return the seconds until its first poll is open, by the clock and of processor time."""
    with server(where.server) as fake:
        fake.schedule(0)
        began = time.monotonic()
        with running(
            [fake.url if word == "URL" else word for word in command],
            where.contender,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            environment={"PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
        ) as process:
            eventually_sync("the first poll is open", lambda: fake.open_polls() > 0, seconds=60.0)
            took, used = time.monotonic() - began, cpu_seconds(process.pid)
            fake.kill()
    return took, used
