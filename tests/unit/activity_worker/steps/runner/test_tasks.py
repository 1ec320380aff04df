"""Tasks as a module declares them."""

import pytest

from activity_worker import Activities
from activity_worker.steps import Tasks


def test_registry_with_a_handler_is_refused_by_name() -> None:
    app = Activities()
    app.activity(name="resize")(print)

    with pytest.raises(ValueError, match="registry: has the handler 'resize'; give Tasks a registry without handlers"):
        Tasks([], registry=app)
