"""IDs contain their time, and sort in the order of their creation."""

import time
import uuid

import pytest

from activity_worker.flows import job_ids


@pytest.fixture(autouse=True)
def _new_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ids, "_maker", job_ids._Maker())


def test_id_is_a_uuid_of_version_7_with_its_time() -> None:
    made = uuid.UUID(job_ids.uuid7(1000.001))

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_000_001
    assert abs((uuid.UUID(job_ids.uuid7()).int >> 80) / 1000 - time.time()) < 5


def test_ids_sort_by_creation_even_within_one_millisecond() -> None:
    made = [job_ids.uuid7(1.0) for _ in range(1000)] + [job_ids.uuid7(1.001), job_ids.uuid7(0.5)]

    assert made == sorted(set(made))
    assert all(uuid.UUID(one).version == 7 for one in made)
