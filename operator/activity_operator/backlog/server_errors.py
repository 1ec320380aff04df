"""What conditions say of servers that are counted."""

from activity_operator.backlog.protocol import SourceProblemError


def unreachable(server: str, words: str) -> SourceProblemError:
    """Return the problem of a server that does not answer."""
    text = f"no answer from {server}: check its address in the pool's source and the network's rules for the operator"
    return SourceProblemError("BackendUnreachable", f"{text} ({words})")
