"""Kubernetes Events: posted once, then counted as a series, and limited for a pool that posts too many."""

from typing import Any, cast

from activity_operator.cluster.event_publisher import BURST, EventPublisher
from activity_operator.cluster.kube import ApiError, KubeClient
from activity_operator.core.decision import EmitEvent

POOL = {"metadata": {"namespace": "ns", "name": "p", "uid": "0123456789", "resourceVersion": "5"}}


class EventServer:
    """Receives Events as an API server does; with `lost` the Event of a series is gone."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.posted: list[dict[str, Any]] = []
        self.counted: list[tuple[str, int]] = []
        self.lost = False
        self.leading = True
        self.poster = EventPublisher(
            cast("KubeClient", self),
            "operator_1",
            allowed=lambda: self.leading,
            clock=lambda: self.now,
            wall=lambda: 1.8e9 + self.now,
        )

    async def create(self, kind: object, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self.posted.append(body)
        return body

    async def merge_patch(self, kind: object, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.lost:
            raise ApiError(404, "NotFound", "the event is gone")
        self.counted.append((name, body["series"]["count"]))
        return body

    async def emit(self, reason: str, message: str = "because") -> None:
        await self.poster.post(POOL, EmitEvent("Warning", reason, message))


async def test_event_names_pool_reason_and_type() -> None:
    events = EventServer()
    await events.emit("PoolStalled")

    event = events.posted[0]
    assert (event["reason"], event["type"], event["note"]) == ("PoolStalled", "Warning", "because")
    assert event["regarding"]["uid"] == "0123456789"
    assert event["metadata"]["namespace"] == "ns"


async def test_equal_event_is_counted_at_most_once_a_minute() -> None:
    events = EventServer()
    for _ in range(3):
        await events.emit("PoolStalled")
        events.now += 10
    assert len(events.posted) == 1
    assert events.counted == []
    events.now += 60
    await events.emit("PoolStalled")

    assert events.counted == [(events.posted[0]["metadata"]["name"], 4)]


async def test_another_message_is_another_event() -> None:
    events = EventServer()
    await events.emit("ScaledUp", "0 to 1")
    await events.emit("ScaledUp", "1 to 5")

    assert len(events.posted) == 2
    assert events.posted[0]["metadata"]["name"] != events.posted[1]["metadata"]["name"]


async def test_series_starts_again_after_ten_minutes() -> None:
    events = EventServer()
    await events.emit("PoolStalled")
    events.now += 601
    await events.emit("PoolStalled")

    assert len(events.posted) == 2


async def test_series_starts_again_when_its_event_is_gone() -> None:
    events = EventServer()
    await events.emit("PoolStalled")
    events.now += 61
    events.lost = True
    await events.emit("PoolStalled")
    await events.emit("PoolStalled")

    assert len(events.posted) == 2


async def test_pool_with_too_many_events_is_limited_and_recovers() -> None:
    events = EventServer()
    for number in range(BURST + 10):
        await events.emit("ScaledUp", f"{number}")
    assert len(events.posted) == BURST
    events.now += 15
    await events.emit("ScaledUp", "later")

    assert len(events.posted) == BURST + 1


async def test_note_is_one_line_within_the_byte_limit_of_the_api_server() -> None:
    events = EventServer()
    await events.emit("PodTemplateRejected", "a\nb \x1b[31m" + "☃" * 1000)

    note = events.posted[0]["note"]
    assert note.startswith(r"a\nb \x1b[31m☃")
    assert note.isprintable()
    assert 1020 <= len(note.encode()) <= 1024
