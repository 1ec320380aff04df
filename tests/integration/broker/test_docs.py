"""docs/taskbroker.md is correct."""

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from activity_worker import LeasedTask, MemorySource, Slot, cli
from activity_worker.contract import ScheduledActivity
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.protocol.arguments import to_json
from tests.servers.ports import free_port

DOC = (Path(__file__).parents[3] / "docs" / "taskbroker.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)


def table(command: str) -> str:
    """Return the table of a command's flags."""
    return DOC.partition(f"| flag of `activity-worker {command}` |")[2].partition("\n\n")[0]


async def test_example_enqueues_its_task_once(tmp_path: Path) -> None:
    example = EXAMPLES[0]
    module: dict[str, Any] = {}
    exec(compile(example, "docs/taskbroker.md", "exec"), module)
    async with running_broker(f"sqlite:///{tmp_path}/broker.db", BrokerOptions("127.0.0.1:0")) as port:
        assert [await module["enqueue"](f"localhost:{port}") for _ in range(2)] == [1, 0]


async def test_example_works_on_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = {}
    exec(compile(EXAMPLES[1], "docs/taskbroker.md", "exec"), module)
    task = module["send"].new(kwargs={"order": 7})
    scheduled = ScheduledActivity(task.taskname, "", namespace=task.namespace)
    source = MemorySource()
    source._waiting.append(LeasedTask("token", to_json(task.args, task.kwargs), scheduled))
    await Slot(source, module["app"]).run_once()

    assert source.conclusions["token"].result == "success"
    assert capsys.readouterr().out.split() == ["sent", "7"]


def test_every_flag_of_the_worker_is_in_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    flags = set(re.findall(r"^  (--taskbroker[a-z-]*)", capsys.readouterr().out, re.MULTILINE))
    assert flags == set(re.findall(r"^\| `(--[a-z-]+)`", table("run"), re.MULTILINE))


def test_every_flag_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["broker", "--help"])
    flags = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    tables = table("broker") + DOC.partition("| flag of `activity-worker broker` for Kafka |")[2].partition("\n\n")[0]
    assert flags == set(re.findall(r"`(--[a-z-]+)`", tables))
    defaults = vars(cli.make_parser().parse_args(["broker"]))
    unset = {"store": "sqlite:///taskbroker.db", "kafka-group": "taskbroker"}
    for flag, documented in re.findall(r"^\| `--([a-z-]+)` \| `?([^|`]+?)`? \|", tables, re.MULTILINE):
        value = defaults[flag.replace("-", "_")]
        known = unset.get(flag, "none" if value is None else value)
        shown = f"{known:,g}" if isinstance(known, float) else f"{known:,}" if isinstance(known, int) else known
        assert shown == documented, flag


async def test_every_metric_is_in_the_table(tmp_path: Path) -> None:
    # Nothing listens there: the metrics are counted before Kafka answers.
    kafka = KafkaSettings("127.0.0.1:1", retry_topic="retries")
    options = BrokerOptions("127.0.0.1:0", health_port=free_port(), kafka=kafka)
    async with running_broker(f"sqlite:///{tmp_path}/broker.db", options):
        page = await asyncio.to_thread(read, f"http://127.0.0.1:{options.health_port}/metrics")
    assert set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE)) == set(re.findall(r"`(activity_broker_\w+)`", DOC))


def read(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text
