"""Finds each setting, flags first, then the environment, and words the error when a value cannot be used."""

import math
import re
from collections.abc import Mapping


class SettingsError(ValueError):
    """A setting cannot be used. The message names its flag or variable, the value and the fix."""


class UsageError(Exception):
    """An argument of a command cannot be used. The message names the argument and the fix."""


class SettingsReader:
    """Finds each value, remembers where it came from, and words the error."""

    def __init__(self, flags: Mapping[str, str | None], env: Mapping[str, str]) -> None:
        self._flags = flags
        self._env = env

    def find(self, flag: str, env: str) -> tuple[str | None, str]:
        """Return the value (None when unset or empty) and its origin as a person writes it."""
        value = self._flags.get(flag)
        if value is not None:
            return value, f"--{flag}"
        return self._env.get(env) or None, env or f"--{flag}"

    def text(self, flag: str, env: str = "") -> str | None:
        """Return the value as it is."""
        return self.find(flag, env)[0]

    def matching(self, flag: str, env: str, pattern: re.Pattern[str], expected: str, default: str = "") -> str:
        """Return the value if all of it matches; raises `SettingsError`."""
        found, origin = self.find(flag, env)
        value = found or default
        if not value:
            raise SettingsError(f"no value for --{flag}: expected {expected}; pass --{flag} or set {env}")
        if not pattern.fullmatch(value):
            raise SettingsError(f"{origin}={value!r}: expected {expected}")
        return value

    def count(self, flag: str, env: str, default: int | None, least: int, most: int) -> int | None:
        """Return a whole number within bounds; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise SettingsError(f"{origin}={value!r}: expected a whole number from {least} to {most}")
        return int(value)

    def seconds(self, flag: str, env: str, default: float | None, least: float) -> float | None:
        """Return a finite number of seconds; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not least <= number < 1e9:
            raise SettingsError(f"{origin}={value!r}: expected seconds, a number of at least {least:g}, such as 30")
        return number

    def url(self, flag: str, env: str) -> str | None:
        """Return an http or https URL; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is not None and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
            raise SettingsError(f"{origin}={value!r}: expected a URL such as https://host:port")
        return value

    def choice(self, flag: str, default: str, choices: tuple[str, ...], env: str = "") -> str:
        """Return one of `choices`; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is not None and value not in choices:
            raise SettingsError(f"{origin}={value!r}: expected one of {', '.join(choices)}")
        return value or default
