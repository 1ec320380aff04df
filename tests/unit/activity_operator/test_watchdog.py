"""The watchdog: it ends a leader whose loop is stuck, and nobody else."""

import threading

from activity_operator.watchdog import EXIT_STUCK, Watchdog


def watchdog(ended: list[int], done: threading.Event) -> Watchdog:
    def end(code: int) -> None:
        ended.append(code)
        done.set()

    return Watchdog(0.05, interval_seconds=0.01, end=end)


def test_a_leader_whose_loop_is_stuck_is_ended() -> None:
    ended: list[int] = []
    done = threading.Event()
    dog = watchdog(ended, done)
    dog.tick(leading=True)
    dog.start()

    assert done.wait(5)
    assert ended == [EXIT_STUCK]


def test_a_standby_is_never_ended() -> None:
    ended: list[int] = []
    done = threading.Event()
    dog = watchdog(ended, done)
    dog.tick(leading=False)
    dog.start()

    assert not done.wait(0.2)
    dog.stop()


def test_a_loop_that_turns_is_left_alone() -> None:
    ended: list[int] = []
    done = threading.Event()
    dog = watchdog(ended, done)
    dog.start()
    for _ in range(20):
        dog.tick(leading=True)
        assert not done.wait(0.01)
    dog.stop()
