"""Times as the API server writes them: RFC 3339, UTC, whole seconds."""

from datetime import UTC, datetime


def to_rfc3339(time: datetime) -> str:
    """Return the time as metav1.Time has it. Raises ValueError for a time without a zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone; use an aware datetime")
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_rfc3339(text: str) -> datetime:
    """Return the time in the text. Raises ValueError when it is none."""
    return datetime.fromisoformat(text)
