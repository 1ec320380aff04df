"""The version of this project: of the worker runtime and of the operator."""

from typing import Final

#: The same as in `pyproject.toml`, which a test compares. Reading it from the installed package takes 10 ms of a start.
VERSION: Final = "0.1.0"
