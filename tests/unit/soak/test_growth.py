"""What is flat and what grows."""

import random

import pytest

from tests.soak.growth import LEAST_SECONDS, LIMITS, WARM_UP_SECONDS, Growth, Sample, lines

MINUTES = 12


def life(
    rss: float = 0.0, files: float = 0.0, lag: float = 0.0, pid: int = 1, minutes: float = MINUTES, led: float = 0.0
) -> list[Sample]:
    """Samples of a noisy process that grows by so much a minute; bursts come and go."""
    dice = random.Random(5)
    found = []
    for at in range(0, int(minutes * 60), 5):
        burst = 8.0 if dice.random() < 0.2 else 0.0
        warm = 20_000 * min(max(at - led, 0.0) / WARM_UP_SECONDS, 1.0)
        found.append(
            Sample(
                float(at),
                "operator-a",
                pid,
                80_000 + warm + rss * at / 60 + dice.uniform(-300, 300),
                30 + burst + int(files * at / 60),
                abs(dice.gauss(0.005, 0.01)) + lag * at / 60,
                float(dice.randrange(3)),
                at >= led,
            )
        )
    return found


def judged(samples: list[Sample]) -> dict[str, Growth]:
    return {line.measure: line for line in lines(samples, WARM_UP_SECONDS, LEAST_SECONDS)}


def test_a_process_that_warms_up_and_then_only_breathes_is_flat() -> None:
    found = judged(life())

    assert set(found) == set(LIMITS)
    assert not [line for line in found.values() if line.wrong]


@pytest.mark.parametrize(
    ("measure", "leaky"),
    [("rss", life(rss=1024.0)), ("files", life(files=2.0)), ("lag", life(lag=0.03))],
    ids=["1 MB a minute", "2 files a minute", "30 ms a minute"],
)
def test_a_leak_is_found_in_twelve_minutes_and_nothing_else_is_blamed(measure: str, leaky: list[Sample]) -> None:
    found = judged(leaky)

    assert [name for name, line in found.items() if line.wrong] == [measure]
    assert measure in found[measure].wrong


def test_each_process_is_judged_by_itself() -> None:
    """Two that grow as they warm up and die young are no leak, whatever their samples look like one after the other."""
    assert not lines([*life(minutes=3, pid=1), *life(minutes=3, pid=2)], WARM_UP_SECONDS, LEAST_SECONDS)


def test_a_process_warms_up_again_when_it_first_leads() -> None:
    """A standby that takes over fills its caches then, and would look like a leak."""
    found = judged(life(led=200.0))

    assert not found["rss"].wrong
    assert found["rss"].seconds < MINUTES * 60 - 200.0 - WARM_UP_SECONDS


def test_a_leader_s_connections_are_no_growth_over_a_standby_s() -> None:
    """It leads for the second half of what is judged."""
    leads = [at < WARM_UP_SECONDS or at > 500 for at in range(0, 900, 5)]
    roles = [Sample(n * 5.0, "a", 1, 1.0, 70.0 if led else 30.0, 0.0, 0.0, led) for n, led in enumerate(leads)]

    assert judged(roles)["files"].seconds > 700.0
    assert judged(roles)["files"].a_minute == 0.0


def test_a_process_that_leads_for_moments_only_has_not_warmed_up() -> None:
    """Each of its terms fills more of what a leader fills; half an hour of faults has such standbys."""
    life = [Sample(at * 5.0, "a", 1, 80_000 + 5_000 * (at // 40), 30.0, 0.0, 0.0, at % 40 == 39) for at in range(300)]

    assert judged(life) == {}


def test_a_standby_that_leaks_is_found_before_it_leads() -> None:
    life = [Sample(at * 5.0, "a", 1, 80_000 + 100.0 * at, 30.0, 0.0, 0.0, at > 100) for at in range(110)]

    assert judged(life)["rss"].wrong


def test_a_loop_that_is_often_late_is_wrong_though_it_does_not_get_worse() -> None:
    late = [Sample(float(at), "a", 1, 1.0, 1.0, 0.8, 0.0, True) for at in range(0, 600, 5)]

    assert "later than" in judged(late)["lag"].wrong


@pytest.mark.parametrize(("waited", "wrong"), [(0.5, True), (2.0, False)])
def test_a_beat_that_is_late_for_want_of_a_processor_is_not_blamed(waited: float, wrong: bool) -> None:
    """1 s of each 5 s the thread runs; the beat is 0.8 s late, of which it waits a third or two thirds."""
    late = [Sample(at * 5.0, "a", 1, 1.0, 1.0, 0.8, 0.0, True, float(at), waited * at) for at in range(120)]

    assert bool(judged(late)["lag"].wrong) is wrong
