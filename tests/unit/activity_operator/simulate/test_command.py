"""The sub-command: its table, its page, its budgets, and its messages."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from activity_operator import __main__ as program
from activity_operator.simulate import command
from activity_operator.simulate.results import Wait, percentile, result_of, reversals
from activity_operator.simulate.run import POLICIES
from activity_operator.simulate.workers import Costs

MANIFEST = """
apiVersion: activitypools.dev/v1alpha1
kind: ActivityPool
metadata: {name: resize}
spec:
  activityArn: arn:aws:states:us-east-1:123456789012:activity:resize
  handlerImage: registry.example.com/resize:1
  maxWorkers: 50
"""


@pytest.fixture
def pool(tmp_path: Path) -> str:
    path = tmp_path / "pool.yaml"
    path.write_text(MANIFEST)
    return str(path)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str, errors: io.StringIO | None = None) -> SimpleNamespace:
    output, errors = io.StringIO(), errors or io.StringIO()
    code = command.run(arguments, output, errors)
    return SimpleNamespace(code=code, output=output.getvalue(), errors=errors.getvalue())


def test_table_has_a_row_for_each_policy(pool: str) -> None:
    ran = run(pool, "--trace", "cron40", "--minutes", "2")

    lines = ran.output.splitlines()
    assert ran.code == command.EXIT_OK
    assert lines[0].startswith("cron40: 40 tasks, ")
    assert [line.split()[0] for line in lines[1:]] == ["policy", *POLICIES]
    assert ran.errors == ""


def test_json_has_the_numbers_of_each_trace(pool: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("0,5\n1,5\n")
    csv = str(tmp_path / "mine.csv")
    ran = run(pool, "--trace", csv, "--trace", "trickle", "--minutes", "5", "--policy", "activitypool", "--json")

    first, second = json.loads(ran.output)
    assert (first["trace"], second["trace"]) == (csv, "trickle")
    assert first["results"][0]["tasks"] == 2
    assert first["results"][0]["unfinished"] == 0
    assert "samples" not in first["results"][0]


def test_same_command_prints_the_same_table(pool: str) -> None:
    arguments = (pool, "--trace", "trickle", "--minutes", "2", "--policy", "activitypool", "--policy", "keda")
    first = run(*arguments).output

    assert first == run(*arguments).output
    assert first != run(*arguments, "--seed", "2").output


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (("--max-p99", "0.5"), r"--max-p99 0.5 is broken on cron40: 99 % of the tasks waited up to \d+\.\d\d s"),
        (("--max-worker-seconds", "100"), r"--max-worker-seconds 100 is broken on cron40: the pool used \d+ worker-s"),
    ],
)
def test_broken_budget_ends_with_1_and_is_named(pool: str, budget: tuple[str, str], message: str) -> None:
    ran = run(pool, "--trace", "cron40", "--minutes", "2", "--policy", "activitypool", *budget)

    assert ran.code == command.EXIT_BUDGET
    assert re.search(message, ran.errors)
    assert ran.errors.count("is broken") == 1


def test_kept_budgets_end_with_0(pool: str) -> None:
    budgets = ("--max-p99", "60", "--max-worker-seconds", "100000")
    ran = run(pool, "--trace", "cron40", "--minutes", "2", "--policy", "activitypool", *budgets)

    assert (ran.code, ran.errors) == (command.EXIT_OK, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("maxWorkers: 50", "maxWorkers: 0"), "pool.yaml: spec.maxWorkers '0'"),
        (("maxWorkers: 50", "maxWorker: 5"), "pool.yaml: spec.max"),
        (("kind: ActivityPool", "kind: Deployment"), "pool.yaml: has 0 objects of kind ActivityPool; keep exactly one"),
        (("spec:", "specs:"), "pool.yaml: spec is missing"),
        (("kind: ActivityPool", "kind: [ActivityPool"), "pool.yaml: is no YAML: "),
        (("maxWorkers: 50", "maxWorkers: 5\n  activation: {mode: CloudWatch}"), "activation.mode CloudWatch is not"),
    ],
)
def test_wrong_manifest_ends_with_2_and_names_field_and_fix(pool: str, change: tuple[str, str], message: str) -> None:
    Path(pool).write_text(MANIFEST.replace(*change))
    ran = run(pool, "--trace", "trickle")

    assert ran.code == command.EXIT_USAGE
    assert message in ran.errors
    assert ran.output == ""


def test_unknown_trace_and_missing_files_end_with_2(pool: str, tmp_path: Path) -> None:
    assert "trace 'no' is unknown" in run(pool, "--trace", "no").errors
    missing = run(str(tmp_path / "none.yaml"), "--trace", "trickle")
    assert (missing.code, "none.yaml: cannot be read: No such file" in missing.errors) == (2, True)
    page = run(pool, "--trace", "cron40", "--minutes", "2", "--policy", "oracle", "--html", str(tmp_path / "no/p.html"))
    assert page.code == command.EXIT_USAGE
    assert "p.html: cannot be written" in page.errors


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--pod-start", "0", "argument --pod-start: 0 must be above 0"),
        ("--max-p99", "fast", "argument --max-p99: fast must be a number of at least 0"),
        ("--first-poll", "-1", "argument --first-poll: -1 must be a number of at least 0"),
    ],
)
def test_wrong_option_ends_with_2_and_is_named(
    pool: str, option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(pool, "--trace", "trickle", option, value)

    assert ended.value.code == command.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_terminal_shows_a_progress_bar_and_a_file_none(pool: str) -> None:
    arguments = (pool, "--trace", "trickle", "--minutes", "5", "--policy", "keda", "--policy", "oracle")
    ran = run(*arguments, errors=Terminal())

    assert "] 100% trickle: oracle" in ran.errors or "]  50% trickle: oracle" in ran.errors
    assert ran.errors.endswith("\r\x1b[K")
    assert run(*arguments).errors == ""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in {"src", "href"}]


def test_page_has_a_plot_for_each_policy_and_loads_nothing(pool: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run(pool, "--trace", "cron40", "--minutes", "2", "--html", str(page))

    text = page.read_text()
    parsed = _Page()
    parsed.feed(text)
    assert parsed.tags.count("svg") == len(POLICIES) - 1  # the oracle is a number without a course
    assert parsed.tags.count("polyline") == 3 * (len(POLICIES) - 1)
    assert parsed.links == []
    assert "script" not in parsed.tags
    assert "<h1>pool.yaml: pods start in 3 s, seed 1</h1>" in text


def test_program_runs_the_sub_command(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["activity-operator", "simulate", pool, "--trace", "cron40", "--minutes", "2", "--policy", "oracle"]
    )

    with pytest.raises(SystemExit) as ended:
        program.main()

    assert ended.value.code == 0


def test_percentile_is_the_value_that_a_share_does_not_exceed() -> None:
    values = [float(number) for number in range(1, 101)]

    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([], 0.5)) == (50.0, 99.0, 0.0)


def test_reversals_count_turns_and_ignore_equal_sizes() -> None:
    assert reversals([0, 1, 5, 5, 3, 3, 4, 0]) == 3
    assert reversals([0, 1, 2]) == 0


def test_result_compares_worker_seconds_with_the_least_possible() -> None:
    costs = Costs(worker_seconds=300.0, starts=2, sizes=[(0.0, 0), (1.0, 2), (9.0, 0), (20.0, 1)])
    waits = [Wait(0.0), Wait(2.0)]
    result = result_of("p", waits, 0, costs, least_seconds=100.0, seconds=1800.0, samples=())

    assert (result.ratio, result.reversals_per_hour, result.wait_p99) == (3.0, 4.0, 2.0)


def test_waits_of_tasks_that_met_no_worker_are_told_apart() -> None:
    waits = [Wait(0.5), Wait(4.0, from_zero=True)]
    found = result_of("p", waits, 0, Costs(), least_seconds=100.0, seconds=1800.0, samples=())
    none = result_of("p", waits[:1], 0, Costs(), least_seconds=100.0, seconds=1800.0, samples=())

    assert (found.wait_p99_from_zero, found.wait_p99_beside_workers) == (4.0, 0.5)
    assert none.wait_p99_from_zero is None


def test_json_file_of_counts_is_a_trace(pool: str, tmp_path: Path) -> None:
    trace = tmp_path / "morning.json"
    values = [[1_763_800_000.0 + 10 * step, "0.2"] for step in range(12)]
    trace.write_text(json.dumps({"data": {"resultType": "matrix", "result": [{"values": values}]}}))
    given = (pool, "--trace", str(trace), "--task-seconds", "2", "--policy", "activitypool")

    ran = run(*given, "--max-p99", "30")
    assert (ran.code, ran.errors) == (command.EXIT_OK, "")
    assert "morning.json: 24 tasks" in ran.output
    assert run(*given, "--max-p99", "0.001").code == command.EXIT_BUDGET


@pytest.mark.parametrize(
    ("scaling", "sentence"),
    [
        ("{mode: Recommend}", "spec.scaling.mode Recommend starts no worker; use Auto"),
        (
            '{schedules: [{name: day, startCron: "0 8 * * *", endCron: "0 9 * * *", minWorkers: 1}]}',
            "spec.scaling.schedules is not simulated: a trace has no date; set minWorkers instead",
        ),
    ],
)
def test_option_that_a_trace_cannot_show_is_refused(tmp_path: Path, scaling: str, sentence: str) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(f"{MANIFEST}  scaling: {scaling}\n")

    ran = run(str(path), "--trace", "trickle")
    assert ran.code == command.EXIT_USAGE
    assert sentence in ran.errors
