"""Reads the tenancy policy's file at the start and after changes; an invalid file leaves the last valid policy."""

import logging
from collections.abc import Callable
from pathlib import Path

import yaml

from activity_operator.core.tenancy import PolicyError, TenancyPolicy, parse_policy

#: Seconds between two reads of the file; a mounted ConfigMap itself takes a minute to change.
LOOK_SECONDS = 10.0

log = logging.getLogger(__name__)


class PolicyFile:
    """Returns the policy in force. An empty path means the default policy. `clock` is monotonic seconds."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self._path = Path(path) if path else None
        self._clock = clock
        self._policy = TenancyPolicy()
        self._text: str | None = None
        self._next = float("-inf")

    def load(self) -> None:
        """Read the file for the first time; raises `PolicyError` if it is unreadable or invalid."""
        if self._path is not None:
            self._read(self._path)
        self._next = self._clock() + LOOK_SECONDS

    def __call__(self) -> TenancyPolicy:
        """Return the policy in force; read the file again if the last read is ten seconds ago."""
        if self._path is not None and self._clock() >= self._next:
            self._next = self._clock() + LOOK_SECONDS
            try:
                self._read(self._path)
            except PolicyError:
                log.exception("the tenancy policy cannot be used; the last valid one stays in force")
        return self._policy

    def _read(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            if text == self._text:
                return
            self._policy = parse_policy(yaml.safe_load(text))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise PolicyError(f"{path}: cannot be read: {error}") from error
        self._text = text
