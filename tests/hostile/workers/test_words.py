"""A worker's texts appear in its pool's status as plain text of bounded length, whatever they contain."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from activity_operator.cluster.resources import POOLS
from tests.eventually import eventually
from tests.hostile.workers.attacked_cluster import PAYLOAD, TENANT, AttackedCluster, Pod
from tests.hostile.workers.background import Background
from tests.hostile.workers.lies import TEXTS
from tests.hostile.workers.oracle import check, neighbours
from tests.hostile.workers.wire import TlsConnection, say

#: Texts for the status; besides, lone surrogates, which JSON can carry and no encoding can.
WORDS = (*(text for text in TEXTS if 0 < len(text) <= 4096), "\ud800", "a\udfff\ud800b")
MARK = "the last text"


@pytest.fixture
def line(here: AttackedCluster) -> Iterator[TlsConnection]:
    with here.address.connect() as made:
        yield made


def report(here: AttackedCluster, pod: Pod, line: TlsConnection, **fields: Any) -> None:
    """Report, and expect acceptance."""
    answer = line.post(say(pod, next(here.sequence), **fields), pod.token)
    assert answer.status == 200, answer


def wait_for(here: AttackedCluster, background: Background, mark: str) -> dict[str, Any]:
    """Wait until the status has an event with this message; return the status."""
    found: list[dict[str, Any]] = []

    async def stands() -> bool:
        pool = await here.api.call("GET", POOLS.path(TENANT, TENANT)) or {}
        found[:] = [pool.get("status") or {}]
        return any(event["message"] == mark for event in found[0].get("events") or ())

    background.do(eventually(f"the status has {mark!r}", stands, seconds=30.0))
    return found[0]


def test_texts_of_a_worker_are_shown_as_plain_text(
    here: AttackedCluster, background: Background, line: TlsConnection
) -> None:
    before = background.do(neighbours(here))
    pod = here.attacker
    serial = itertools.count(1)
    for word in (*WORDS, MARK):
        event = {"sequence": next(serial), "name": "worker:error", "at": 1e11, "message": word}
        report(here, pod, line, events=[event])
    # The largest number that fits into the status; the worker has worked, so this is no failed start.
    event = {"sequence": next(serial), "name": "worker:stopped", "at": 0, "message": "the end"}
    report(here, pod, line, events=[event], exit={"code": 2**31 - 1, "error": "the end"})
    status = wait_for(here, background, MARK)

    assert {event["worker"] for event in status["events"]} == {pod.name}
    ends = [event["exit"] for event in status["events"] if event["name"] == "worker:stopped"]
    assert ends == [{"code": 2**31 - 1, "error": "the end"}]
    background.do(check(here, before))


def test_worker_cannot_report_for_another_pod(here: AttackedCluster, line: TlsConnection) -> None:
    body = say(here.attacker, next(here.sequence), podName=here.mate.pod.name)
    answer = line.post(body, here.attacker.token)

    assert (answer.status, answer.error) == (403, "podName: the token is bound to another pod")


def test_worker_that_knows_another_pools_lease_name_gains_nothing(
    here: AttackedCluster, background: Background, line: TlsConnection
) -> None:
    before, lease = background.do(neighbours(here)), here.held_lease
    assert f"lease-{lease}" in before.records
    for fields in (
        {"claims": [lease]},
        {"released": [lease]},
        {"busy": 1, "leases": [{"id": lease, "ageSeconds": 60.0}]},
        {"claims": [lease], "released": [lease], "leases": [{"id": lease, "ageSeconds": 1.0}]},
    ):
        answer = line.post(say(here.attacker, next(here.sequence), **fields), here.attacker.token)
        reply = json.loads(answer.body)

        assert answer.status == 200, answer
        assert reply["granted"] == reply["offers"] == []
        assert reply["refused"] == fields.get("claims", [])
        assert PAYLOAD.encode() not in answer.body
    background.do(check(here, before))
