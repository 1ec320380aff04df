"""What every suite shares."""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while test modules are parsed.

    CPython 3.11 counts the depth of a parse per interpreter. A finalizer that runs within it and whose error is shown
    parses too, and the outer parse then ends with "SystemError: AST constructor recursion depth mismatch".
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if enabled:
            gc.enable()
