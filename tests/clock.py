"""A clock for code that is given one."""


class Clock:
    """Seconds that pass only when a test sets `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
