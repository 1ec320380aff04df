"""The sub-command `activity-operator simulate`: reads the files, runs the simulations, prints the tables."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from activity_operator.api.spec import PoolSpec
from activity_operator.simulate.csv_trace import read_trace
from activity_operator.simulate.errors import SimulationError
from activity_operator.simulate.manifest import read_manifest
from activity_operator.simulate.metric_trace import read_metric_trace
from activity_operator.simulate.operator_pool import OperatorPool
from activity_operator.simulate.page import as_page
from activity_operator.simulate.run import POLICIES, Conditions, check_spec, simulate
from activity_operator.simulate.table import Budgets, Outcome, as_json, as_text, broken_budgets
from activity_operator.simulate.traces import TRACES, Trace, generate_trace

EXIT_OK, EXIT_BUDGET, EXIT_USAGE = 0, 1, 2
#: Above the largest number that an option takes.
LARGEST = 1e9
#: Characters of the progress bar.
BAR = 30


def run(arguments: Sequence[str], output: TextIO, errors: TextIO) -> int:
    """Run the sub-command; return 0, 1 if a budget is broken, 2 if an argument or a file cannot be used."""
    asked = _parser().parse_args(arguments)
    try:
        outcomes, slots = _simulate(asked, errors)
        output.write(as_json(outcomes) if asked.json else "\n".join(as_text(outcome) for outcome in outcomes))
        if asked.html:
            title = f"{Path(asked.manifest).name}: pods start in {asked.pod_start:g} s, seed {asked.seed}"
            _write(asked.html, as_page(outcomes, title, slots))
    except SimulationError as error:
        errors.write(f"activity-operator simulate: {error}\n")
        return EXIT_USAGE
    broken = list(broken_budgets(outcomes, OperatorPool.name, Budgets(asked.max_p99, asked.max_worker_seconds)))
    errors.writelines(f"activity-operator simulate: {sentence}\n" for sentence in broken)
    return EXIT_BUDGET if broken else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="activity-operator simulate",
        description="Simulate an ActivityPool on a trace of tasks in virtual time, beside other autoscalers.",
    )
    add = parser.add_argument
    add("manifest", help="a file with one ActivityPool")
    add(
        "--trace", action="append", required=True, metavar="NAME",
        help=f"a trace, may be repeated: {', '.join(TRACES)}, a .csv file of arrival and duration in seconds, "
        "or a .json file with counts from Prometheus or CloudWatch",
    )  # fmt: skip
    add("--task-seconds", type=_positive, help="mean duration of the tasks of a .json file, in seconds")
    add("--minutes", type=_positive, help="length of a generated trace (default: its usual length)")
    add("--seed", type=int, default=1, help="seed of the trace and of the pods' starts (default 1)")
    add("--pod-start", type=_positive, default=3.0, help="median seconds from a pod's creation to its first poll (3)")
    add(
        "--first-poll", type=_seconds, default=0.0,
        help="seconds after which Step Functions answers the first poll of each of the pool's slots (0)",
    )  # fmt: skip
    add(
        "--policy", action="append", choices=POLICIES, help="only this policy, may be repeated (default: all)"
    )  # fmt: skip
    add("--max-p99", type=_positive, help="exit with 1 if 1 %% of the pool's tasks wait for longer, in seconds")
    add("--max-worker-seconds", type=_positive, help="exit with 1 if the pool uses more worker-seconds on a trace")
    add("--html", metavar="FILE", help="write one page with the tables and plots")
    add("--json", action="store_true", help="print JSON instead of the tables")
    return parser


def _positive(text: str) -> float:
    value = _seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text} must be above 0")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < LARGEST:
        raise argparse.ArgumentTypeError(f"{text} must be a number of at least 0 and below {LARGEST:.0f}")
    return value


def _simulate(asked: argparse.Namespace, errors: TextIO) -> tuple[list[Outcome], int]:
    spec = read_manifest(asked.manifest, _read(asked.manifest))
    check_spec(spec)
    traces = [_trace(name, asked) for name in asked.trace]
    policies = asked.policy or POLICIES
    conditions = Conditions(asked.pod_start, asked.seed, asked.first_poll)
    bar = _ProgressBar(errors, len(traces) * len(policies))
    outcomes = [_outcome(spec, trace, policies, conditions, bar) for trace in traces]
    bar.clear()
    return outcomes, spec.slots_per_worker


def _outcome(
    spec: PoolSpec, trace: Trace, policies: Sequence[str], conditions: Conditions, bar: "_ProgressBar"
) -> Outcome:
    results = []
    for policy in policies:
        bar.begin(f"{trace.name}: {policy}")
        results.append(simulate(policy, spec, trace, conditions, bar.show))
        bar.end()
    return Outcome(trace, tuple(results))


def _trace(name: str, asked: argparse.Namespace) -> Trace:
    if name.endswith(".json"):
        return read_metric_trace(name, _read(name), asked.seed, asked.task_seconds)
    if name.endswith(".csv"):
        return read_trace(name, _read(name).splitlines())
    return generate_trace(name, asked.seed, asked.minutes * 60 if asked.minutes else None)


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SimulationError(f"--html {name}: cannot be written: {error.strerror}") from error


class _ProgressBar:
    """A bar on a terminal over all simulations; it writes nothing to another stream."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream if stream.isatty() else None
        self._total = total
        self._done = 0
        self._text = ""
        self._shown = ""

    def begin(self, text: str) -> None:
        """Begin one simulation."""
        self._text = text
        self.show(0.0)

    def show(self, share: float) -> None:
        """Show how much of the simulation is done, from 0 to 1."""
        if self._stream is None:
            return
        done = min((self._done + share) / self._total, 1.0)
        line = f"[{'#' * int(BAR * done):{BAR}}] {done:4.0%} {self._text}"
        if line != self._shown:
            self._shown = line
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()

    def end(self) -> None:
        """End one simulation."""
        self._done += 1

    def clear(self) -> None:
        """Remove the bar."""
        if self._stream is not None and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def main() -> None:
    """Run the sub-command with the program's arguments, and exit with its code."""
    sys.exit(run(sys.argv[2:], sys.stdout, sys.stderr))
