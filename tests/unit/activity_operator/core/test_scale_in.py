"""How slowly a pool shrinks: windows by the start of its pods, a floor, a dead band, and the steps of the spec."""

from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.estimates import NO_ESTIMATES, Estimates
from activity_operator.core.scale_in import limited, recheck_times
from activity_operator.core.situation import Situation, situation_of
from activity_operator.core.size_history import NO_SIZES, STEP_SECONDS, SizeHistory
from activity_operator.core.stabilize import Stable
from activity_operator.core.windows import default_windows, with_windows
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pool, worker
from tests.unit.activity_operator.core.load import load_of
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

REDIS = {"activityArn": None, "source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}}


def open_spec(**scaling: Any) -> PoolSpec:
    """Return a spec that leaves the windows to the operator."""
    return pool(scaling={"scaleDown": {}, **scaling}, maxWorkers=500)


def situation(spec: PoolSpec, now: float = NOW) -> Situation:
    return situation_of(spec, observed(busy("w1"), now=now))


def size(
    workers: int, history: SizeHistory, spec: PoolSpec, *, known: Estimates = NO_ESTIMATES, now: float = NOW
) -> int:
    """Return the size that the rules allow where the windows allow `workers`."""
    return limited(situation(spec, now), Stable(workers, "", (), None), known, history).workers


@pytest.mark.parametrize(
    ("start", "window", "zero_after"),
    [(None, 60, 230), (1.0, 20, 50), (3.0, 24, 60), (6.0, 48, 120), (30.0, 60, 230), (100.0, 60, 230)],
)
def test_windows_follow_the_measured_start(start: float | None, window: int, zero_after: int) -> None:
    assert default_windows(pool(**REDIS), start) == (window, zero_after)


@pytest.mark.parametrize("start", [None, 1.0, 2.0, 3.0, 4.5, 6.0, 10.0, 12.0, 30.0])
def test_windows_of_step_functions_end_before_a_poll_does(start: float | None) -> None:
    polled_by_workers = pool(activation={"mode": "None"}, minWorkers=1)
    window, zero_after = default_windows(polled_by_workers, start)

    assert (window, zero_after % 60) == (50, 50)
    assert default_windows(pool(), start)[1] == zero_after


@pytest.mark.parametrize(("start", "window"), [(None, 60), (3.0, 24), (6.0, 48), (30.0, 60)])
def test_window_follows_the_start_where_idle_workers_stand_by(start: float | None, window: int) -> None:
    assert default_windows(pool(), start)[0] == window


def test_times_of_the_spec_are_kept() -> None:
    spec = pool(scaling={"scaleDown": {"stabilizationWindowSeconds": 0}})
    down = with_windows(spec, 3.0).scaling.scale_down

    assert (down.stabilization_window_seconds, down.zero_after_seconds) == (0, 50)


def test_pool_of_slow_pods_shrinks_later_than_one_of_fast_pods() -> None:
    sizes = {}
    for seconds in (1.0, 9.0):
        harness = PoolHarness(PoolSpec.model_validate({**pool_spec(**REDIS).model_dump(by_alias=True), "scaling": {}}))
        harness.truth.import_seconds = seconds
        harness.truth.arrive(4, 5.0)
        harness.run(30.0 + seconds)
        sizes[seconds] = harness.replicas

    assert sizes[1.0] < sizes[9.0] == 4


def test_floor_keeps_spare_workers_for_the_load_of_the_last_minutes() -> None:
    known = Estimates(fast=16.0, short=16.0, long=25.0)
    history = SizeHistory(((NOW - 100, 40),))

    assert size(10, history, open_spec(), known=known) == 22
    assert size(30, history, open_spec(), known=known) == 30
    assert size(10, history, open_spec(), known=Estimates(fast=20.0, short=20.0, long=12.0)) == 22


def test_floor_starts_no_worker() -> None:
    known = Estimates(fast=16.0, short=25.0, long=16.0)

    assert size(10, SizeHistory(((NOW - 100, 12),)), open_spec(), known=known) == 12


@pytest.mark.parametrize(("fast", "floor"), [(60.0, 94), (16.0, 40), (1.0, 11), (0.0, 6)])
def test_load_that_has_ended_leaves_the_floor_soon(fast: float, floor: int) -> None:
    """The means of 30 and 60 s forget 200 tasks that ended at once only after minutes."""
    known = Estimates(fast=fast, short=80.0, long=120.0)

    assert size(0, SizeHistory(((NOW - 100, 200),)), open_spec(), known=known) == floor


def test_floor_leaves_small_loads_and_windows_of_the_user_alone() -> None:
    history = SizeHistory(((NOW - 100, 9),))

    assert size(1, history, open_spec(), known=Estimates(short=2.0, long=2.0)) == 1
    assert size(1, history, pool(), known=Estimates(short=16.0, long=16.0)) == 1


@pytest.mark.parametrize(("workers", "seconds", "kept"), [(19, 59, 20), (18, 59, 20), (17, 59, 17), (19, 60, 19)])
def test_small_surplus_stays_for_a_minute_after_growth(workers: int, seconds: float, kept: int) -> None:
    history = SizeHistory(((NOW - seconds, 20),), grown_at=NOW - seconds)

    assert size(workers, history, open_spec()) == kept


def test_dead_band_does_not_keep_a_pool_from_zero() -> None:
    assert size(0, SizeHistory(((NOW - 5, 1),), grown_at=NOW - 5), open_spec()) == 0


@pytest.mark.parametrize(("seconds", "kept"), [(29, 20), (30, 12)])
def test_nothing_leaves_for_half_a_window_after_growth(seconds: float, kept: int) -> None:
    """The window of 60 s, as no start is known, has kept 20 workers once, and has faded to 12 by now."""
    history = SizeHistory(((NOW - seconds, 20),), grown_at=NOW - seconds)
    stable = Stable(12, "the stabilization window", ((NOW - 40, 20), (NOW, 3)), None)
    found = limited(situation(open_spec()), stable, NO_ESTIMATES, history)

    assert (found.workers, found.held_by == "growth of the last seconds") == (kept, kept == 20)


def test_growth_holds_no_more_than_the_window_does() -> None:
    history = SizeHistory(((NOW - 5, 20),), grown_at=NOW - 5)
    stable = Stable(3, "", ((NOW - 4, 9), (NOW, 3)), None)

    assert limited(situation(open_spec()), stable, NO_ESTIMATES, history).workers == 9
    assert limited(situation(pool()), stable, NO_ESTIMATES, history).workers == 3


@pytest.mark.parametrize(("seconds", "kept"), [(59, 20), (60, 3)])
def test_fall_begins_a_minute_after_the_one_before(seconds: float, kept: int) -> None:
    """Bursts in a row would turn the size twice each."""
    history = SizeHistory(((NOW - 40, 20),), grown_at=NOW - 40, fell_at=NOW - seconds)
    found = limited(situation(open_spec()), Stable(3, "", ((NOW, 3),), None), NO_ESTIMATES, history)

    assert (found.workers, found.held_by) == (kept, "the minute between two falls" if kept == 20 else "")


def test_fall_that_goes_on_is_not_held() -> None:
    history = SizeHistory(((NOW - 1, 15),), grown_at=NOW - 100, fell_at=NOW - 10)

    assert size(3, history, open_spec()) == 3


def test_size_turns_once_a_minute_at_most() -> None:
    history = NO_SIZES
    for second, workers in enumerate((0, 9, 9, 4, 2, 7, 7)):
        history = history.followed_by(workers, NOW + second)

    assert (history.grown_at, history.fell_at, history.falls) == (NOW + 5, NOW + 3, False)
    assert history.followed_by(1, NOW + 80).fell_at == NOW + 80


@pytest.mark.parametrize("down", [{}, {"maxPodsPerMinute": 2}], ids=["no steps", "steps"])
def test_pool_whose_limit_ends_starts_no_worker_for_what_was_needed(down: dict[str, int]) -> None:
    """A pin, a pause, a freeze or a breaker had kept the size at 2; the tasks have ended meanwhile."""
    spec = open_spec(scaleDown={"zeroAfterSeconds": 300, **down})
    history = SizeHistory(((NOW - 5, 40),), grown_at=NOW - 5)
    memory = ScalingMemory(((NOW - 5, 40),), estimates=Estimates(short=30.0, long=30.0), sizes=history, size=2)

    decision = decide(spec, observed(worker("w0"), worker("w1")), memory)

    assert decision.size.desired == 2


@pytest.mark.parametrize(
    ("down", "sizes"),
    [
        ({"maxPodsPerMinute": 3}, [10, 7, 7, 4, 1, 0]),
        ({"maxPercent": 50}, [10, 5, 5, 2, 1, 0]),
        ({"maxPodsPerMinute": 3, "maxPercent": 90}, [10, 7, 7, 4, 1, 0]),
    ],
    ids=["pods", "percent", "the stricter one"],
)
def test_steps_bound_what_leaves_within_a_minute(down: dict[str, int], sizes: list[int]) -> None:
    spec = pool(scaling={"scaleDown": {"stabilizationWindowSeconds": 0, "zeroAfterSeconds": 0, **down}})
    history = NO_SIZES.followed_by(10, NOW)
    found = [10]
    for seconds in (1.0, 30.0, 62.0, 123.0, 184.0):
        found.append(size(0, history, spec, now=NOW + seconds))
        history = history.followed_by(found[-1], NOW + seconds)

    assert found == sizes


def test_pool_looks_again_when_the_next_step_is_due() -> None:
    spec = pool(scaling={"scaleDown": {"maxPodsPerMinute": 1}})
    history = SizeHistory(((NOW - 20, 5), (NOW - 20, 4)))

    assert NOW - 20 + STEP_SECONDS in list(recheck_times(situation(spec), NO_ESTIMATES, history))


def test_steps_hold_in_a_whole_pool() -> None:
    load = load_of("counted", window=5, zero_after=5, maxWorkers=20)
    load.harness.edit(scaling={"scaleDown": {"stabilizationWindowSeconds": 5, "maxPodsPerMinute": 4}})
    load.arrive(20)
    load.run(240)

    assert max(load.sizes) == 20
    minutes = [load.sizes[start + 60] - load.sizes[start] for start in range(len(load.sizes) - 60)]
    assert min(minutes) >= -4
    assert load.sizes[-1] < 12


def test_pool_looks_again_while_its_floor_falls_and_after_growth() -> None:
    history = SizeHistory(((NOW - 100, 40),), grown_at=NOW - 20, fell_at=NOW - 55)
    falling = Estimates(fast=10.0, short=25.0, long=16.0, running=10)
    known = {0.0, NOW + 5.0, NOW + 10.0, NOW + 40.0}

    assert set(recheck_times(situation(open_spec()), falling, history)) == known | {NOW + 2.0}
    assert set(recheck_times(situation(open_spec()), Estimates(running=10), history)) == known
