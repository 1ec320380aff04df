"""A task that a source has handed out."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LeasedTask:
    """One leased task: the service's token, and its input as JSON text. Neither shows in a repr or a log."""

    token: str = field(repr=False)
    input: str = field(repr=False)
