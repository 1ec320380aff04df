"""What every suite shares."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine the making of examples takes longer than hypothesis thinks healthy, and an example has no deadline.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@contextmanager
def _no_garbage_collected() -> Generator[None, None, None]:
    """Keep finalizers out of a parse.

    CPython 3.11 counts the depth of a parse per interpreter. A finalizer that runs within it and whose error is shown
    parses too, and the outer parse then ends with "SystemError: AST constructor recursion depth mismatch".
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Test modules are parsed here."""
    with _no_garbage_collected():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish() -> Generator[None, object, object]:
    """Plugins are parsed here: hypothesis' summary imports all of it where no test has, after the last test."""
    with _no_garbage_collected():
        return (yield)
