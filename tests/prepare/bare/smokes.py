"""A smoke of each suite, run inside the bare root: `python -m tests.prepare.bare.smokes`.

A smoke is chosen for what the suite needs of a machine, not for what it proves of the product. The root has no network
here, so that a suite that installs something fails. A smoke that fails runs once more, as failed tests of `make test`
do (tests/suites/second_run.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PYTEST = ("pytest", "-q", "--no-header", "-p", "no:cacheprovider")
#: The last lines of a failed smoke, said again below the table: a CI's log is often cut to its end.
LINES = 15


@dataclass(frozen=True)
class Smoke:
    """Some tests of a suite, by their ids; or, with `command`, another module and its arguments."""

    suite: str
    tests: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """The result of one run of a smoke, with the last lines of its output."""

    suite: str
    seconds: float
    code: int
    lines: tuple[str, ...] = ()


UP = Smoke("cluster up", command=("tests.cluster", "up"))
SMOKES = (
    Smoke("unit", ("tests/unit/test_docs.py", "tests/unit/prepare")),
    Smoke(
        "conformance",
        (
            "tests/conformance/test_worker.py::test_every_execution_succeeds_with_its_handlers_result",
            "tests/conformance/test_sources.py::test_task_is_leased_once",
        ),
    ),
    Smoke(
        "processes",
        ("tests/integration/worker/test_examples.py", "tests/integration/reports/test_report_server.py"),
    ),
    Smoke(
        "steps",
        (
            "tests/integration/steps/test_cli.py::test_example_fails_at_fulfilment_and_refunds",
            "tests/integration/steps/test_store.py::test_id_is_created_once",
        ),
    ),
    Smoke(
        "redis",
        (
            "tests/integration/redis/test_servers.py::test_user_with_few_rights_can_work_over_tls",
            "tests/integration/flows/test_our_flow_their_workers.py::test_position_of_a_job_is_seen",
        ),
    ),
    Smoke(
        "backlog",
        (
            "tests/integration/backlog/test_prometheus.py::test_number_is_the_count_of_waiting_tasks",
            "tests/integration/backlog/test_redis_servers.py::test_password_in_the_url",
            "tests/integration/backlog/test_taskstore.py::test_new_instance_is_counted_at_once",
        ),
    ),
    # A scenario that loads libfaketime.
    Smoke("faults", command=("tests.faults", "--part", "election", "--only", "leader an hour ahead", "--lanes", "1")),
    Smoke("hostile", ("tests/hostile/workers/test_words.py::test_worker_cannot_report_for_another_pod",)),
    UP,
    Smoke(
        "cluster",
        (
            "tests/integration/test_local_cluster.py::test_service_is_reached_by_its_name_from_another_pod",
            "tests/integration/test_emulators.py::test_task_is_polled_heartbeaten_and_concluded",
        ),
    ),
    # The first of the suites that install the CRD, because Helm does not adopt a CRD of another owner.
    Smoke(
        "e2e",
        (
            "tests/e2e/test_redis.py::test_pool_goes_from_zero_to_work_and_back_with_each_job_once",
            "tests/e2e/test_task_store.py::test_wrong_password_is_reported_and_the_new_secret_is_read",
        ),
    ),
    Smoke("chart", ("tests/integration/chart/test_chart.py::test_helm_lint_gives_no_warning",)),
    Smoke("crd", ("tests/integration/crd/test_serving.py::test_api_server_fills_in_the_models_defaults",)),
    Smoke("operator", ("tests/integration/operator/test_at_rest.py",)),
    Smoke("cluster down", command=("tests.cluster", "down")),
)


def main() -> int:
    """Run every smoke and print the table; return 0 when all passed, the first time or the second."""
    # No interface is up in a new network namespace, not even the loopback.
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    rows: list[Row] = []
    for smoke in SMOKES:
        rows.append(_run(smoke))
        if rows[-1].code:
            print(f"\n==> {smoke.suite} failed: once more", flush=True)
            rows.append(_run(smoke))
        if smoke == UP and rows[-1].code:
            break  # the other smokes need the cluster
    print("\n" + "\n".join(report(rows)))
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    """Return 0 when the last run of every smoke passed, else 1."""
    return int(any(_last_codes(rows).values()))


def report(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table, then what failed: its last lines, and whether it passed the second time."""
    yield f"{'smoke':<14}{'seconds':>9}  result"
    for row in rows:
        yield f"{row.suite:<14}{row.seconds:>9.1f}  {'ok' if row.code == 0 else f'FAILED ({row.code})'}"
    last = _last_codes(rows)
    for row in rows:
        if row.code:
            yield ""
            yield f"{row.suite}{' (UNSTEADY: it passed the second time)' if last[row.suite] == 0 else ''} ended with:"
            yield from (f"  {line}" for line in row.lines)


def _last_codes(rows: Sequence[Row]) -> dict[str, int]:
    return {row.suite: row.code for row in rows}


def _run(smoke: Smoke) -> Row:
    print(f"\n==> {smoke.suite}", flush=True)
    began = time.monotonic()
    words = [sys.executable, "-m", *(smoke.command or (*PYTEST, *smoke.tests))]
    lines: deque[str] = deque(maxlen=LINES)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return Row(smoke.suite, time.monotonic() - began, run.returncode, tuple(lines))


if __name__ == "__main__":
    sys.exit(main())
