"""Times in the API server's format: RFC 3339, UTC, whole seconds."""

from datetime import UTC, datetime


def to_rfc3339(time: datetime) -> str:
    """Return the time in the format of metav1.Time. Raises ValueError for a time without a time zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone; use an aware datetime")
    # strftime would write a year before 1000 without leading zeros.
    return time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def from_rfc3339(text: str) -> datetime:
    """Return the time in the text, in UTC. Raises ValueError if the text is no time."""
    try:
        # RFC 3339 allows lower-case letters; Python does not.
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text} is before the year 1 or after 9999 in UTC") from error
