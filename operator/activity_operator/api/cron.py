"""PURE: times of a cron expression in a time zone; cronsim treats clock changes as Debian's cron does."""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_MINUTE = 60
_FIELDS = 5


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of this name in the IANA database. Raises ValueError for an unknown one."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("is no time zone of the IANA database; write one such as Europe/Berlin or UTC") from error


def next_time(expression: str, zone: str, after: float) -> float | None:
    """Return the first time of the expression after `after`, in Unix seconds; None if none comes in the next decades.

    Raises ValueError for an expression or a time zone that cannot be used.
    """
    # A time of a cron expression is the begin of a minute, so all moments of a minute have the same next time.
    return _next_time(expression, zone, int(after // _MINUTE))


@lru_cache(maxsize=4096)
def _next_time(expression: str, zone: str, minute: int) -> float | None:
    if len(expression.split()) != _FIELDS:
        raise ValueError("is no cron expression of five fields; write one such as 0 8 * * 1-5")
    try:
        times = CronSim(expression, datetime.fromtimestamp(minute * _MINUTE, UTC).astimezone(time_zone(zone)))
        return next(times).timestamp()
    except CronSimError as error:
        raise ValueError(f"is no cron expression ({error}); write one such as 0 8 * * 1-5") from error
    except StopIteration:
        return None
