"""The election: at most one leader, for every fault of the API server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from activity_operator.cluster.election import Elector, Timing
from activity_operator.cluster.kube import ApiError, ApiUnreachableError


class LeaseServer:
    """One Lease with compare-and-swap; a test can break the answers for one caller or for all."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 100
        self.created = "2026-01-01T00:00:00Z"
        self.writes = 0

    def client(self) -> "LeaseClient":
        return LeaseClient(self)

    def store(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.writes += 1
        meta = {**body["metadata"], "resourceVersion": str(self.version)}
        meta.setdefault("creationTimestamp", self.created)
        self.lease = {**body, "metadata": meta}
        return self.lease


class LeaseClient:
    """One process's client. `fault` is awaited before each call, `after` once a write took effect."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.fault: Callable[[], Any] | None = None
        self.after: Callable[[], Any] | None = None

    async def _trouble(self) -> None:
        if self.fault is not None:
            await self.fault()

    async def get(self, kind: object, namespace: str, name: str) -> dict[str, Any]:
        await self._trouble()
        if self.server.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        return self.server.lease

    async def create(self, kind: object, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._trouble()
        if self.server.lease is not None:
            raise ApiError(409, "AlreadyExists", "there is one")
        return self.server.store(body)

    async def replace(
        self, kind: object, namespace: str, name: str, body: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        await self._trouble()
        if self.server.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        if body["metadata"]["resourceVersion"] != self.server.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "changed")
        stored = self.server.store(body)
        if self.after is not None:
            await self.after()
        return stored


async def refuse() -> None:
    raise ApiUnreachableError("connection refused")


async def hang() -> None:
    await asyncio.Event().wait()


class Electors:
    """Electors on one clock that the test moves; the time-out of a call is real and short."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = LeaseServer()
        self.electors: list[Elector] = []
        self.changes: list[tuple[str, bool]] = []

    def join(self, name: str) -> tuple[Elector, LeaseClient]:
        client = self.server.client()
        elector = Elector(
            client,
            "ops",
            "lease",
            name,
            clock=lambda: self.now,
            wall=lambda: 1_800_000_000.0 + self.now,
            on_change=lambda leading: self.changes.append((name, leading)),
            timing=Timing(15, 10, 2, 0.05),
        )
        self.electors.append(elector)
        return elector, client

    async def pass_time(self, seconds: float) -> None:
        """Move the clock in steps of half a second; electors try every 2 s, and at most one may lead."""
        for tick in range(int(seconds * 2)):
            self.now += 0.5
            for elector in self.electors if tick % 4 == 3 else ():
                await elector.step()
                self.check()
            self.check()

    def check(self) -> None:
        assert len([elector for elector in self.electors if elector.leading]) <= 1


async def test_first_writer_leads_and_the_other_waits() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    two, _ = electors.join("two")
    await electors.pass_time(60)

    assert one.leading
    assert not two.leading
    assert electors.changes == [("one", True)]


async def test_unreachable_leader_steps_down_before_another_leads() -> None:
    electors = Electors()
    one, broken = electors.join("one")
    two, _ = electors.join("two")
    await electors.pass_time(4)
    broken.fault = refuse
    await electors.pass_time(30)

    assert not one.leading
    assert two.leading
    assert electors.changes == [("one", True), ("one", False), ("two", True)]


async def test_leader_with_hanging_calls_steps_down_before_another_leads() -> None:
    electors = Electors()
    one, broken = electors.join("one")
    two, _ = electors.join("two")
    await electors.pass_time(4)
    broken.fault = hang
    await electors.pass_time(30)

    assert not one.leading
    assert two.leading


async def test_leader_that_was_frozen_no_longer_leads() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    await electors.pass_time(4)
    electors.now += 60

    assert not one.leading


async def test_thawed_holder_of_the_lease_begins_a_new_term() -> None:
    """It did not lead meanwhile and callers may have turned away, so it has to take over again."""
    electors = Electors()
    one, _ = electors.join("one")
    await electors.pass_time(4)
    first = one.term
    electors.now += 12
    await one.step()

    assert one.leading
    assert one.term > first
    assert electors.changes == [("one", True), ("one", False), ("one", True)]


async def test_renewal_answered_after_the_deadline_ends_the_term() -> None:
    electors = Electors()
    one, client = electors.join("one")
    await electors.pass_time(4)

    async def late() -> None:
        electors.now += 7

    client.after = late
    electors.now += 5
    await one.step()
    client.after = None

    assert not one.leading
    assert electors.changes == [("one", True), ("one", False)]
    await one.step()
    assert one.leading


async def test_api_outage_leaves_no_leader_until_it_ends() -> None:
    electors = Electors()
    pairs = [electors.join("one"), electors.join("two")]
    await electors.pass_time(4)
    for _, client in pairs:
        client.fault = refuse
    await electors.pass_time(60)
    assert not any(elector.leading for elector in electors.electors)
    assert not any(elector.reachable for elector in electors.electors)
    for _, client in pairs:
        client.fault = None
    await electors.pass_time(20)

    assert len([elector for elector in electors.electors if elector.leading]) == 1


@pytest.mark.parametrize(("status", "reachable"), [(401, False), (403, True), (409, True), (429, False), (503, False)])
async def test_elector_is_unreachable_when_api_server_cannot_serve_it(status: int, reachable: bool) -> None:
    """An unreachable leader could not record a task, so it must not poll for one."""
    electors = Electors()
    elector, client = electors.join("one")
    await elector.step()

    async def refused() -> None:
        raise ApiError(status, "", "refused")

    client.fault = refused
    await elector.step()
    assert (elector.leading, elector.reachable) == (True, reachable)
    client.fault = None
    await elector.step()

    assert elector.reachable


async def test_renewal_with_a_lost_answer_keeps_the_lead() -> None:
    electors = Electors()
    one, client = electors.join("one")
    await electors.pass_time(4)
    client.after = hang
    await electors.pass_time(2)
    client.after = None
    await electors.pass_time(20)

    assert one.leading
    assert electors.changes == [("one", True)]


async def test_race_for_a_free_lease_has_one_winner() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    two, _ = electors.join("two")
    await asyncio.gather(one.step(), two.step())
    electors.check()

    assert one.leading != two.leading


async def test_standby_tries_again_exactly_when_the_lease_expires() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    two, _ = electors.join("two")
    await one.step()
    await two.step()
    killed = electors.now
    while not two.leading:
        electors.now += two._pause()
        await two.step()

    assert electors.now - killed == pytest.approx(15.0)


async def test_released_lease_is_taken_at_the_next_attempt() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    two, _ = electors.join("two")
    await electors.pass_time(4)
    await one.release()
    electors.electors.remove(one)
    await electors.pass_time(4)

    assert two.leading


async def test_terms_increase_even_after_the_lease_was_deleted() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    two, _ = electors.join("two")
    await electors.pass_time(4)
    first = one.term
    await one.release()
    electors.electors.remove(one)
    await electors.pass_time(4)
    second = two.term
    electors.server.lease, electors.server.created = None, "2026-01-01T00:10:00Z"
    electors.electors.remove(two)
    three, _ = electors.join("three")
    await electors.pass_time(4)

    assert first < second < three.term


async def test_leader_that_lost_and_won_again_begins_a_new_term() -> None:
    electors = Electors()
    one, client = electors.join("one")
    await electors.pass_time(4)
    first = one.term
    client.fault = refuse
    await electors.pass_time(20)
    client.fault = None
    await electors.pass_time(20)

    assert one.leading
    assert one.term > first


async def test_jump_of_the_wall_clock_changes_nothing() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    two, _ = electors.join("two")
    await electors.pass_time(4)
    assert electors.server.lease is not None
    electors.server.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    await electors.pass_time(8)

    assert one.leading
    assert not two.leading


async def test_malformed_lease_does_not_end_the_election() -> None:
    electors = Electors()
    one, client = electors.join("one")

    async def nonsense() -> None:
        electors.server.lease = {"metadata": {}}

    client.fault = nonsense
    await electors.pass_time(4)
    client.fault = None
    electors.server.lease = None
    await electors.pass_time(4)

    assert one.leading


async def test_leader_that_finds_another_holder_in_the_lease_steps_down_at_once() -> None:
    """A person may edit the Lease or restore a backup; no deadline has passed then."""
    electors = Electors()
    one, _ = electors.join("one")
    await electors.pass_time(4)
    lease = electors.server.lease
    assert lease is not None
    electors.server.store({**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})

    await electors.pass_time(4)

    assert not one.leading
    assert electors.changes == [("one", True), ("one", False)]


async def test_release_does_not_write_the_lease_of_another_holder() -> None:
    electors = Electors()
    one, _ = electors.join("one")
    await electors.pass_time(4)
    lease = electors.server.lease
    assert lease is not None
    electors.server.store({**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
    writes = electors.server.writes

    await one.release()

    assert not one.leading
    assert electors.server.writes == writes


async def test_release_that_fails_or_hangs_ends_the_term() -> None:
    for trouble in (refuse, hang):
        electors = Electors()
        one, client = electors.join("one")
        await electors.pass_time(4)
        client.fault = trouble

        await one.release()

        assert not one.leading
