"""How a story is told: at once what happens at once."""

from tests.demo.happenings import REMEMBERED, TOGETHER_SECONDS, Happening, remember, settled


def ready(at: float, who: str) -> Happening:
    return Happening(at, "is ready", "are ready", (who,))


def story(*happenings: Happening) -> tuple[Happening, ...]:
    told: tuple[Happening, ...] = ()
    for happening in happenings:
        told = remember(told, happening)
    return told


def test_what_happens_to_several_workers_within_a_second_is_one_sentence() -> None:
    told = story(ready(1.0, "a"), Happening(1.1, "starts", "start", ("d",)), ready(1.2, "b"), ready(1.9, "c"))

    assert [h.text for h in told] == ["3 workers are ready", "worker d starts"]


def test_what_happens_later_is_a_sentence_of_its_own() -> None:
    told = story(ready(1.0, "a"), ready(1.0 + TOGETHER_SECONDS, "b"))

    assert [h.text for h in told] == ["worker a is ready", "worker b is ready"]


def test_a_worker_is_not_counted_twice() -> None:
    assert [h.text for h in story(ready(1.0, "a"), ready(1.1, "a"))] == ["worker a is ready"]


def test_sizes_of_a_burst_are_one_step_with_the_last_reason() -> None:
    told = story(
        Happening(1.0, "1 -> 2 workers: 0 running, 2 held"),
        Happening(1.2, "2 -> 3 workers: 0 running, 3 held"),
        Happening(1.4, "3 -> 9 workers: 1 running, 8 held"),
    )

    assert [h.text for h in told] == ["1 -> 9 workers: 1 running, 8 held"]


def test_sizes_that_do_not_follow_each_other_stay_apart() -> None:
    told = story(Happening(1.0, "1 -> 2 workers: x"), Happening(1.2, "5 -> 3 workers: y"))

    assert len(told) == 2


def test_a_happening_is_settled_when_nothing_can_join_it() -> None:
    told = story(ready(1.0, "a"), ready(2.5, "b"))

    assert settled(told, 2.6) == told[:1]
    assert settled(told, 2.5 + TOGETHER_SECONDS) == told


def test_a_long_story_loses_its_beginning() -> None:
    told = story(*(Happening(float(n * 2), f"thing {n}") for n in range(REMEMBERED + 1)))

    assert (len(told), told[0].text) == (REMEMBERED, "thing 1")
