"""The claim book: a lease that the operator offers runs here exactly once."""

from activity_worker.contract import Grant, Reply
from activity_worker.supervisor.claims import CLAIM_TIMEOUT_SECONDS, STOPPING_CLAIM_TIMEOUT_SECONDS, ClaimBook


def reply(**parts: object) -> Reply:
    return Reply(term=1, next_report_seconds=1.0, **parts)  # type: ignore[arg-type]


def test_offers_are_claimed_for_free_slots_only() -> None:
    book = ClaimBook()
    book.answered(reply(offers=("a", "b", "c")), asked=())

    book.claim(free_slots=2, now=0.0)
    assert (list(book.claims), book.unclaimed) == (["a", "b"], True)
    book.claim(free_slots=2, now=0.1)
    assert (list(book.claims), book.unclaimed) == (["a", "b", "c"], False)


def test_repeated_grant_is_run_once() -> None:
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)
    grant = Grant("a", "token", "{}")

    assert book.answered(reply(granted=(grant,)), asked=("a",)) == (grant,)
    assert book.answered(reply(granted=(grant,), offers=("a",)), asked=("a",)) == ()
    assert not book.unclaimed


def test_refused_claim_frees_its_slot() -> None:
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)
    book.answered(reply(refused=("a",)), asked=("a",))

    assert book.reserved(now=0.1) == 0
    assert book.claims == {}


def test_unanswered_claim_is_awaited_longer_than_its_slot_is_reserved() -> None:
    """The operator may have written the claim before it died, so a leaving worker waits for the answer."""
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)

    assert (book.reserved(now=CLAIM_TIMEOUT_SECONDS), book.awaited(now=CLAIM_TIMEOUT_SECONDS)) == (0, True)
    assert not book.awaited(now=STOPPING_CLAIM_TIMEOUT_SECONDS), "the wait for an absent operator is limited"


def test_claim_that_is_still_offered_is_claimed_again() -> None:
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)
    book.answered(reply(offers=("a",)), asked=("a",))

    assert list(book.claims) == ["a"]


def test_claim_made_after_the_report_is_kept_after_its_reply() -> None:
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)
    book.answered(reply(), asked=())

    assert list(book.claims) == ["a"]


def test_slot_is_reserved_for_an_unanswered_claim_for_a_limited_time() -> None:
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)

    assert book.reserved(now=CLAIM_TIMEOUT_SECONDS - 0.1) == 1
    assert book.reserved(now=CLAIM_TIMEOUT_SECONDS) == 0


def test_concluded_lease_is_released_until_the_operator_acknowledges() -> None:
    book = ClaimBook(offers=("a",))
    book.claim(free_slots=1, now=0.0)
    book.answered(reply(granted=(Grant("a", "token", "{}"),)), asked=("a",))
    book.concluded("a")
    book.concluded("polled by ourselves")
    assert book.released == {"a"}

    book.answered(reply(), asked=())
    assert book.released == {"a"}

    book.answered(reply(released=("a",)), asked=())
    assert book.released == set()


def test_grant_that_arrives_after_a_withdrawal_is_accepted() -> None:
    book = ClaimBook(offers=("a", "b"))
    book.claim(free_slots=1, now=0.0)
    book.withdraw()
    assert (book.claims, book.unclaimed) == ({}, False)

    grant = Grant("a", "token", "{}")
    assert book.answered(reply(granted=(grant,)), asked=("a",)) == (grant,)
