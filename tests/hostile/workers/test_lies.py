"""Reports that lie: each is answered or refused with the name of the wrong field, and no other pool changes.

First every lie in one place is sent, one after the other; then lies in several places at once, drawn by hypothesis:
always the same 150. `HOSTILE_EXAMPLES=20000` draws other ones at random and prints the seed; `HOSTILE_SEED=...` repeats
that seed.
"""

import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

from tests.hostile.workers.attacked_cluster import AttackedCluster, Pod
from tests.hostile.workers.background import Background
from tests.hostile.workers.lies import Lie, several, single
from tests.hostile.workers.oracle import check, neighbours
from tests.hostile.workers.wire import Answer, TlsConnection

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "0"))
SEED = int(os.environ.get("HOSTILE_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
FIELD = re.compile(r"[A-Za-z, ]+(?=: )")


class LyingWorker:
    """Sends lies over one connection, and reconnects when the operator closes it."""

    def __init__(self, attacked: AttackedCluster, pod: Pod) -> None:
        self._attacked = attacked
        self._pod = pod
        self._connection: TlsConnection | None = None

    def base(self) -> dict[str, Any]:
        """Return the fields that must be correct for a report to be read at all."""
        pod = self._pod
        return {
            "namespace": pod.namespace, "pool": pod.pool, "podName": pod.name, "podUid": pod.uid,
            "sequence": next(self._attacked.sequence),
        }  # fmt: skip

    def tell(self, lie: Lie) -> Answer:
        """Send one lie, and judge the answer."""
        body = lie.body(self.base())
        for _ in range(30):
            if self._connection is None:
                self._connection = self._attacked.address.connect()
            answer = self._connection.post(body, self._pod.token)
            if answer.status == 0 or answer.headers.get("connection") == "close":
                self._connection.close()
                self._connection = None
            # Repeat after a closed connection (0) and after the pod's rate limit (429).
            if answer.status not in {0, 429}:
                break
        judge(lie, answer)
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def judge(lie: Lie, answer: Answer) -> None:
    """Raise AssertionError unless the lie is accepted, or refused with the name of a wrong field."""
    assert answer.status in {200, 400, 403, 413}, f"{lie}: {answer}"
    assert len(answer.body) < 100_000
    if answer.status in {400, 403}:
        field = FIELD.match(answer.error)
        assert field is not None, f"{lie}: {answer}"
        assert field[0] in lie.fields(), f"{lie}: {answer}"
        assert answer.error.isprintable()
        assert len(answer.error) < 200


@pytest.fixture(params=[0])
def lying_worker(here: AttackedCluster, request: pytest.FixtureRequest) -> Iterator[LyingWorker]:
    made = LyingWorker(here, here.attackers[request.param])
    yield made
    made.close()


@pytest.mark.timeout(300)
def test_lie_in_one_place_is_accepted_or_refused_with_its_field(
    here: AttackedCluster, background: Background, lying_worker: LyingWorker
) -> None:
    before = background.do(neighbours(here))
    heard = here.honest.answered
    statuses = {lying_worker.tell(lie).status for lie in single()}

    assert statuses == {200, 400, 403}
    assert not here.honest.wrong
    assert here.honest.answered > heard
    background.do(check(here, before))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lying_worker", [1], indirect=True)
def test_lies_in_several_places_are_accepted_or_refused_alike(
    here: AttackedCluster, background: Background, lying_worker: LyingWorker
) -> None:
    before = background.do(neighbours(here))

    @settings(
        max_examples=EXAMPLES or 150,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(several())
    def tell(lie: Lie) -> None:
        lying_worker.tell(lie)

    if EXAMPLES:
        print(f"HOSTILE_SEED={SEED} HOSTILE_EXAMPLES={EXAMPLES}")
        seeded(SEED)(tell)()
    else:
        tell()
    assert not here.honest.wrong
    background.do(check(here, before))
