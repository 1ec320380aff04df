"""Kubernetes Events: said once, then counted; a pool that says too much is cut short."""

from typing import Any, cast

from activity_operator.cluster.events import BURST, EventPoster
from activity_operator.cluster.kube import ApiError, KubeClient
from activity_operator.core.decision import Say

POOL = {"metadata": {"namespace": "ns", "name": "p", "uid": "0123456789", "resourceVersion": "5"}}


class Desk:
    """Takes Events as an API server would; `lost` makes counted ones missing."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.posted: list[dict[str, Any]] = []
        self.counted: list[tuple[str, int]] = []
        self.lost = False
        self.leading = True
        self.poster = EventPoster(
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

    async def say(self, reason: str, message: str = "because") -> None:
        await self.poster.post(POOL, Say("Warning", reason, message))


async def test_an_event_names_pool_reason_and_type() -> None:
    desk = Desk()
    await desk.say("PoolStalled")

    event = desk.posted[0]
    assert (event["reason"], event["type"], event["note"]) == ("PoolStalled", "Warning", "because")
    assert event["regarding"]["uid"] == "0123456789"
    assert event["metadata"]["namespace"] == "ns"


async def test_an_equal_event_is_counted_at_most_once_a_minute() -> None:
    desk = Desk()
    for _ in range(3):
        await desk.say("PoolStalled")
        desk.now += 10
    assert len(desk.posted) == 1
    assert desk.counted == []
    desk.now += 60
    await desk.say("PoolStalled")

    assert desk.counted == [(desk.posted[0]["metadata"]["name"], 4)]


async def test_another_message_is_another_event() -> None:
    desk = Desk()
    await desk.say("ScaledUp", "0 to 1")
    await desk.say("ScaledUp", "1 to 5")

    assert len(desk.posted) == 2
    assert desk.posted[0]["metadata"]["name"] != desk.posted[1]["metadata"]["name"]


async def test_an_old_series_begins_anew() -> None:
    desk = Desk()
    await desk.say("PoolStalled")
    desk.now += 601
    await desk.say("PoolStalled")

    assert len(desk.posted) == 2


async def test_a_series_whose_event_is_gone_begins_anew() -> None:
    desk = Desk()
    await desk.say("PoolStalled")
    desk.now += 61
    desk.lost = True
    await desk.say("PoolStalled")
    await desk.say("PoolStalled")

    assert len(desk.posted) == 2


async def test_a_pool_that_says_too_much_is_cut_short_and_recovers() -> None:
    desk = Desk()
    for number in range(BURST + 10):
        await desk.say("ScaledUp", f"{number}")
    assert len(desk.posted) == BURST
    desk.now += 15
    await desk.say("ScaledUp", "later")

    assert len(desk.posted) == BURST + 1


async def test_a_note_has_at_most_the_bytes_that_the_api_server_takes_and_one_line() -> None:
    desk = Desk()
    await desk.say("PodTemplateRejected", "a\nb \x1b[31m" + "☃" * 1000)

    note = desk.posted[0]["note"]
    assert note.startswith(r"a\nb \x1b[31m☃")
    assert note.isprintable()
    assert 1020 <= len(note.encode()) <= 1024
