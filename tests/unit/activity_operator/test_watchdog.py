"""The watchdog ends a leader whose loop is stuck, and no other process."""

import threading

from activity_operator.watchdog import EXIT_STUCK, Watchdog

#: Wake-ups of the watchdog after which a loop counts as stuck.
LIMIT = 5


def test_leader_with_a_stuck_loop_is_ended() -> None:
    ended: list[int] = []
    done = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        done.set()

    dog = Watchdog(0.05, interval_seconds=0.01, end=end)
    dog.tick(leading=True)
    dog.start()

    assert done.wait(30)
    assert ended == [EXIT_STUCK]


def test_a_leader_is_stuck_after_the_limit_and_no_earlier() -> None:
    dog = Watchdog(LIMIT, interval_seconds=1)
    dog.tick(leading=True)

    assert [dog.is_stuck() for _ in range(LIMIT)] == [False] * (LIMIT - 1) + [True]


def test_a_standby_is_never_stuck() -> None:
    dog = Watchdog(LIMIT, interval_seconds=1)
    dog.tick(leading=False)

    assert not any(dog.is_stuck() for _ in range(LIMIT * 10))


def test_a_loop_that_turns_is_never_stuck() -> None:
    dog = Watchdog(LIMIT, interval_seconds=1)

    for _ in range(LIMIT * 10):
        dog.tick(leading=True)
        assert not any(dog.is_stuck() for _ in range(LIMIT - 1))
