"""PURE: from which offset of a partition a broker reads when the partition is assigned to it.

The store is asked first: its position was written in the transaction that kept the tasks before it. Kafka's committed
offset may be behind it, after a crash between the two, and then names tasks that are in the store, or were.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of a partition: offsets of the next message to read, None where nothing is kept.

    `low` is the offset of the oldest message that the partition has, `high` that of the next one to be written.
    """

    stored: int | None
    committed: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to read on (None: where `auto.offset.reset` says), and what a person should know about it.

    The store's position is replaced if `replaces`: it is beyond the partition's end.
    """

    offset: int | None
    replaces: bool = False
    warning: str = ""


def start_position(facts: PartitionFacts) -> StartPosition:
    """Return where to read on."""
    stored, committed = facts.stored, facts.committed
    if stored is None:
        return StartPosition(committed)
    if stored > facts.high:
        return _beyond_the_end(facts)
    if committed is not None and committed > stored:
        warning = "the group's committed offset is ahead of this store: another store has the tasks between them"
        return StartPosition(committed, warning=warning)
    if stored < facts.low:
        # The topic's retention has removed what was not read: the oldest message is next.
        return StartPosition(facts.low, warning="messages were removed from the topic before this broker read them")
    return StartPosition(stored)


def _beyond_the_end(facts: PartitionFacts) -> StartPosition:
    if facts.committed is None:
        # Kafka forgets the offsets of a topic that is deleted.
        return StartPosition(None, replaces=True, warning="the topic was made again: it is read as a new one")
    warning = "the partition has lost its last messages: it is read on from its end"
    return StartPosition(facts.high, replaces=True, warning=warning)
