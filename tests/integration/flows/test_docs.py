"""docs/redis.md and the example are correct."""

import asyncio
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from activity_worker.flows import Flow, JobState
from activity_worker.wire.redis_connection import RedisClient

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "redis.md").read_text(encoding="utf-8")
FLOWS = DOC[DOC.index("## Flows") :]


async def test_snippets_make_follow_and_run_a_job(
    client: RedisClient, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for snippet in re.findall(r"```python\n(.*?)```", FLOWS, re.DOTALL):
        exec(snippet, names)

    job_id = await names["follow"](redis_url)
    assert capsys.readouterr().out.splitlines() == ["waiting prepare", f"{job_id} ['pen']"]

    async def prepare(request: Any) -> Any:
        return {"children:check:params": [{"childName": "stock", "item": one} for one in request.input["items"]]}

    async def says_done(request: Any) -> Any:
        return {"done": True}

    job = await names["work"](Flow(names["SHOP"], client), prepare, says_done, says_done)
    assert (job.state, job.queue, job.done) == (JobState.COMPLETED, "send", True)


async def test_example_sends_an_order(client: RedisClient, redis_url: str) -> None:
    spec = importlib.util.spec_from_file_location("example_flows", ROOT / "examples" / "flows" / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    shop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shop)

    job = await shop.main(redis_url)

    assert (job.state, job.queue, job.fields["parcels"]) == (JobState.COMPLETED, "send", 2)
    assert [child.fields["left"] for child in job.children] == [3, 5]


async def test_page_names_every_flag_of_the_monitor() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "activity_worker", "flows", "monitor", "--help"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()

    flags = set(re.findall(r"--[a-z-]+", out.decode())) - {"--help", "--log-format", "--redis-url"}
    assert flags
    assert [flag for flag in sorted(flags) if flag not in FLOWS] == []
