"""The example of Amazon SWF runs from its own files: the worker gets what the operator renders from its pool.yaml."""

import json
import os
from typing import Any

import pytest
import yaml

from activity_operator.api.spec import parse_spec
from activity_operator.core.source_environment import source_environment
from activity_worker.contract import Env
from activity_worker.testing import SwfFake
from tests.eventually import eventually
from tests.integration.worker.process import ROOT, worker

EXAMPLE = ROOT / "examples" / "invoices"
ORDER = {"number": 7, "lines": [{"item": "teapot", "cents": 1950, "count": 2}]}
ADDRESS = {"street": "1 High Street", "city": "Kent"}


def environment(endpoint_url: str) -> dict[str, str]:
    """Return the worker's variables from the example's pool and image."""
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLE / "pool.yaml").read_text(encoding="utf-8"))
    spec = manifest["spec"]
    spec["aws"]["endpointUrl"] = endpoint_url
    (handler,) = (
        line.partition("ACTIVITY_HANDLER=")[2]
        for line in (EXAMPLE / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if "ACTIVITY_HANDLER=" in line
    )
    rendered = {one["name"]: one["value"] for one in source_environment(parse_spec(spec))}
    return {
        **rendered,
        Env.HANDLER.value: handler,
        "PYTHONPATH": f"{EXAMPLE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }


async def test_example_renders_invoices_and_refuses_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with SwfFake(domains=["shop"]) as fake:
        fake.schedule("shop", "invoices", json.dumps(ORDER), name="render-invoice", version="1")
        fake.schedule("shop", "invoices", json.dumps(ADDRESS), name="check-address", version="1")
        fake.schedule("shop", "invoices", "{}", name="check-address", version="1")
        async with worker("run", env=environment(fake.url)):
            await eventually(
                "three tasks are closed",
                lambda: all(task.ended_at for task in fake.tasks),
                details=lambda: str(fake.state()),
            )

        rendered, checked, refused = fake.tasks
        assert json.loads(rendered.result)["cents"] == 3900
        assert json.loads(checked.result) == {"street": "1 High Street", "city": "KENT"}
        assert (refused.state, refused.reason) == ("failed", "UnknownAddressError")
        assert fake.counts["call:RegisterActivityType"] == 2
