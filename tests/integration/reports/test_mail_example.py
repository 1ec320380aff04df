"""The example of a taskbroker runs from its own files: a broker, its producer, the operator's count, and a worker."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from activity_operator.api.spec import parse_spec
from activity_operator.core.source_environment import source_environment
from activity_worker.contract import Env
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from tests.eventually import eventually
from tests.integration.backlog.counted import Counted
from tests.integration.worker.process import ROOT, worker
from tests.servers.taskbroker import BrokerProcess

EXAMPLE = ROOT / "examples" / "mail"


def manifest(port: int) -> dict[str, Any]:
    """Return the spec of the example's pool, with the address of a broker of this machine."""
    spec: dict[str, Any] = yaml.safe_load((EXAMPLE / "pool.yaml").read_text(encoding="utf-8"))["spec"]
    spec["source"]["taskbroker"]["addresses"] = [f"127.0.0.1:{port}"]
    return spec


def environment(spec: dict[str, Any]) -> dict[str, str]:
    """Return the worker's variables from the example's pool and image."""
    (handler,) = (
        line.partition("ACTIVITY_HANDLER=")[2]
        for line in (EXAMPLE / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if "ACTIVITY_HANDLER=" in line
    )
    rendered = {one["name"]: one["value"] for one in source_environment(parse_spec(spec))}
    path = f"{EXAMPLE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**rendered, Env.HANDLER.value: handler, Env.SLOTS.value: "4", "PYTHONPATH": path}


async def enqueue(port: int, count: int) -> str:
    """Run the example's producer as its README says."""
    producer = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE / "enqueue.py"), f"127.0.0.1:{port}", str(count), stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await producer.communicate()
    assert producer.returncode == 0
    return answer.decode()


def is_empty(broker: BrokerProcess) -> bool:
    """Return whether the broker's last count found no task in any state."""
    lines = [line for line in broker.page("metrics").splitlines() if line.startswith("activity_broker_activations{")]
    return bool(lines) and all(line.endswith(" 0.0") for line in lines)


async def test_mails_are_counted_sent_and_one_is_a_dead_letter(tmp_path: Path) -> None:
    broker = BrokerProcess(f"sqlite:///{tmp_path}/mail.db", tmp_path)
    counted = Counted()
    await broker.start()
    try:
        spec = manifest(broker.port)
        counted.order("mail", {"source": spec["source"]})
        await counted.counts("mail", 0)
        assert await enqueue(broker.port, 3) == "4 new\n"
        assert await enqueue(broker.port, 3) == "0 new\n"
        await counted.counts("mail", 4)
        async with worker("run", env=environment(spec)):
            await counted.counts("mail", 0)

            def concluded() -> bool:
                (count,) = counted._signals.latest(("team", "mail"))[0]
                return count.running == 0

            await counted.until("no mail is under way", concluded)
            await eventually("upkeep has removed every mail", lambda: is_empty(broker), details=broker.log.read_text)
    finally:
        await counted.stop()
        broker.stop()

    store = await BrokerStore.open(broker.url)
    try:
        letters = [stored.letter for stored in await list_dead_letters(store)]
        assert [await store.get(f"mail-of-order-{number}") for number in range(3)] == [None] * 3
    finally:
        await store.close()
    assert [letter.id for letter in letters] == ["mail-of-order-3"]
