"""What must hold after every attack: state that must not change, and limits on the log and the metrics."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.hostile.workers.attacked_cluster import (
    MAX_WORKERS,
    MIN_WORKERS,
    NEIGHBOUR,
    PAYLOAD,
    SPARE,
    SYSTEM,
    TENANT,
    AttackedCluster,
)

#: The form of the operator's log lines: a time first, and at most LONGEST characters.
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) +[a-z_][\w.]*: [^\n]*")
#: The most characters of a text that a worker can influence: the limit of a condition's message.
LONGEST = 2048
#: The most log lines for all attacks together: a full log hides other lines and fills the node's disk.
LINES = 200
LABEL = re.compile(r"[A-Za-z0-9 ._:/+-]*")


@dataclass(frozen=True)
class Neighbours:
    """The state of the neighbour's namespace, which the attacker must not be able to change."""

    pods: frozenset[str]
    replicas: dict[str, int]
    pools: dict[str, Any]
    records: dict[str, str]


async def neighbours(attacked: AttackedCluster) -> Neighbours:
    """Return the state of the neighbour's namespace and the leases that the operator holds."""
    deployments = await attacked.api.items(f"/apis/apps/v1/namespaces/{NEIGHBOUR}/deployments")
    pools = [await attacked.pool(NEIGHBOUR, name) for name in (NEIGHBOUR, SPARE)]
    secrets = await attacked.api.items(f"/api/v1/namespaces/{SYSTEM}/secrets")
    return Neighbours(
        pods=frozenset(raw["metadata"]["name"] for raw in await attacked.pods(NEIGHBOUR)),
        replicas={raw["metadata"]["name"]: raw["spec"]["replicas"] for raw in deployments},
        pools={raw["metadata"]["name"]: _gist(raw) for raw in pools},
        records={raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in secrets},
    )


def _gist(pool: dict[str, Any]) -> Any:
    status = pool.get("status") or {}
    conditions = sorted((c["type"], c["status"]) for c in status.get("conditions") or () if c["type"] != "Ready")
    names = [event["name"] for event in status.get("events") or ()]
    return pool["metadata"]["generation"], status.get("desiredReplicas"), status.get("busyWorkers"), conditions, names


async def check(attacked: AttackedCluster, before: Neighbours) -> None:
    """Raise AssertionError when an attack has had a forbidden effect."""
    assert await attacked.alive(), attacked.log.read_text()[-3000:]
    check_log(attacked)
    now = await neighbours(attacked)
    for field in fields(now):
        was, now_is = getattr(before, field.name), getattr(now, field.name)
        assert was == now_is, f"{field.name} of the neighbours: {was} became {now_is}; {await _decisions(attacked)}"
    await _check_tenant(attacked)
    pools = [await attacked.pool(*name) for name in ((TENANT, TENANT), (NEIGHBOUR, NEIGHBOUR), (NEIGHBOUR, SPARE))]
    texts = [*_texts(pools), *_texts(await _events(attacked))]
    for text in texts:
        assert len(text) <= LONGEST, text[:200]
        assert not (odd := unprintable(text)), f"{odd!r} in {text!r}"
    check_exposition(await attacked.metrics(), {TENANT, NEIGHBOUR, SPARE})
    everything = "\n".join([*texts, attacked.log.read_text(errors="replace"), await attacked.metrics()])
    for pod in (*attacked.attackers, attacked.mate.pod, attacked.honest.pod):
        assert pod.token not in everything
        assert pod.token.rpartition(".")[2] not in everything, "a token's signature"
    assert PAYLOAD not in everything
    assert not [task for task in attacked.fake.tasks if task.token in everything], "a task's token"


async def _decisions(attacked: AttackedCluster) -> Any:
    return (await attacked.pool(NEIGHBOUR, NEIGHBOUR))["status"].get("decisions")


async def _check_tenant(attacked: AttackedCluster) -> None:
    pool = await attacked.pool(TENANT, TENANT)
    assert MIN_WORKERS <= pool["status"]["desiredReplicas"] <= MAX_WORKERS
    deployments = await attacked.api.items(f"/apis/apps/v1/namespaces/{TENANT}/deployments")
    assert MIN_WORKERS <= sum(raw["spec"]["replicas"] for raw in deployments) <= MAX_WORKERS
    pods = {raw["metadata"]["uid"]: raw["metadata"] for raw in await attacked.pods(TENANT)}
    for pod in (attacked.attacker, attacked.mate.pod):
        assert pod.uid in pods, f"pod {pod.name} was deleted"
        assert "deletionTimestamp" not in pods[pod.uid], f"pod {pod.name} was deleted"


async def _events(attacked: AttackedCluster) -> list[Any]:
    found = [await attacked.api.items(f"/api/v1/namespaces/{name}/events") for name in (TENANT, NEIGHBOUR)]
    return [(raw["message"], raw["reason"]) for events in found for raw in events]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "managedFields":
                yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def unprintable(text: str) -> str:
    """Return the characters that move a cursor, end a line, change the writing direction or are invalid."""
    return "".join(sorted({letter for letter in text if not letter.isprintable()}))


def check_log(attacked: AttackedCluster) -> None:
    """Raise AssertionError when a line does not have the operator's form, or there are too many lines."""
    lines = attacked.log.read_bytes().decode().split("\n")
    assert lines.pop() == ""
    for line in lines:
        assert LINE.fullmatch(line), f"not a line of the operator's: {line!r}"
        assert not unprintable(line), line
        assert len(line) <= LONGEST, line[:200]
    assert len(lines) <= LINES, f"{len(lines)} lines, the last of them:\n" + "\n".join(lines[-20:])


def check_exposition(text: str, pools: set[str]) -> None:
    """Raise AssertionError when the metrics page has a sample or a label that an attacker chose."""
    series = 0
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("activitypool_")
        for sample in family.samples:
            series += 1
            for label, value in sample.labels.items():
                assert LABEL.fullmatch(value), f"{sample.name} {label}={value!r}"
            assert sample.labels.get("activitypool", TENANT) in pools
    assert series < 2000
