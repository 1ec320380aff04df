"""The error for a spec that cannot be used, and its message."""

from typing import Any

from activity_operator.api.conditions import Reason
from activity_operator.api.text import printable

#: Most characters of a wrong value that a message repeats.
MAX_SHOWN_VALUE = 80


class SpecError(ValueError):
    """A spec that cannot be used: the field (its path in YAML), its value, and the fix.

    `reason` is the condition reason: `InvalidSpec`, or `PodTemplateRejected` for the pod template.
    """

    def __init__(self, field: str, value: Any, fix: str, reason: Reason = Reason.INVALID_SPEC) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        self.reason = reason
        super().__init__(printable(self._sentence()))

    def _sentence(self) -> str:
        shown = "" if self.value is None or isinstance(self.value, dict | list) else _yaml(self.value)
        if not shown or f"'{shown}'" in self.fix:
            return f"spec.{self.field}: {self.fix}"
        return f"spec.{self.field} '{shown[:MAX_SHOWN_VALUE]}' {self.fix}"


def _yaml(value: Any) -> str:
    """Return the value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
