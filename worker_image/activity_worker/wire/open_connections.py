"""The open connections of a server, and how many each source address has. No I/O."""

from collections import Counter
from typing import Generic, Protocol, TypeVar


class HasSource(Protocol):
    """A connection; `source` is the address that it comes from."""

    @property
    def source(self) -> str:
        """The address, or "unknown"."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=HasSource)


class OpenConnections(Generic[ConnectionT]):
    """Keeps the connections that are open, the oldest first. A subclass decides which may stay (`may_connect`)."""

    def __init__(self) -> None:
        self.present: dict[ConnectionT, None] = {}
        self.sources: Counter[str] = Counter()

    def may_connect(self, newcomer: ConnectionT) -> bool:
        """Return whether a connection that is not counted yet may stay."""
        raise NotImplementedError

    def enter(self, connection: ConnectionT) -> bool:
        """Count a new connection; False when it may not stay."""
        if not self.may_connect(connection):
            return False
        self.present[connection] = None
        self.sources[connection.source] += 1
        return True

    def leave(self, connection: ConnectionT) -> None:
        """Stop counting a connection; a second call changes nothing."""
        if connection not in self.present:
            return
        del self.present[connection]
        self.sources[connection.source] -= 1
        if not self.sources[connection.source]:
            del self.sources[connection.source]
