"""Find waits in tests/ that tests/eventually.py should do: private polling loops, and sleeps in test functions.

`python -m tests.scripts.check_waits` prints `PATH:LINE: FUNCTION: what is wrong, and the fix` for each finding that
ALLOWED does not name, and each name in ALLOWED without a finding. It ends with status 1 if it printed anything.
Modules in virtual time are left out: there a sleep sets the clock forward.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
#: What a module or a conftest.py contains if its tests run in virtual time.
VIRTUAL = "VirtualLoop"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Pattern:
    """A kind of unwanted wait: `find` yields the nodes of one function that match."""

    find: Callable[[Function], Iterator[ast.AST]]
    problem: str
    folder: str = ""
    """Below this folder only; "" is everywhere."""


@dataclass(frozen=True)
class Finding:
    """A place that matches a pattern; `path` is relative to tests/."""

    path: str
    line: int
    function: str
    problem: str

    def __str__(self) -> str:
        return f"tests/{self.path}:{self.line}: {self.function}: {self.problem}"


def _polling_loops(function: Function) -> Iterator[ast.AST]:
    """Yield loops that sleep and can end: `while CONDITION`, or a loop with a break or a return."""
    for node in _own_nodes(function):
        if not isinstance(node, ast.While | ast.For | ast.AsyncFor):
            continue
        inside = [*_nodes_without_functions(node.body)]
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        ends = any(isinstance(one, ast.Break | ast.Return) for one in inside)
        if any(map(_sleeps, inside)) and (ends or (isinstance(node, ast.While) and not endless)):
            yield node


def _sleeps_in_tests(function: Function) -> Iterator[ast.AST]:
    """Yield the sleeps of a test function itself. Functions inside it are left out: a handler may have to sleep."""
    if function.name.startswith("test_"):
        yield from (node for node in _own_nodes(function) if _sleeps(node))


def _repeated_looks(function: Function) -> Iterator[ast.AST]:
    """Yield calls of eventually_sync(), which polls and can miss a state that lasts for less than its interval."""
    for node in _own_nodes(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "eventually_sync":
            yield node


PATTERNS: Mapping[str, Pattern] = {
    "polling loop": Pattern(
        _polling_loops, "a polling loop of its own: use eventually() or eventually_sync() of tests/eventually.py"
    ),
    "sleep in a test": Pattern(
        _sleeps_in_tests,
        "a sleep: wait with eventually() for what should happen, or with consistently() for what should stay",
    ),
    "repeated look": Pattern(
        _repeated_looks,
        "a look at a state that may pass: wait with the timeline's eventually(), which sees every change",
        folder="e2e/",
    ),
}

PLAYED = "a part that the test plays: it runs until it is cancelled or told to stop"
PACE = "the pauses set the pace of a load or of faults; the loop waits for nothing"
ELAPSED = "the passing of real time is what is tested"
FINAL = "what it looks for is final once it is true"

#: (path below tests/, function) of each wait that may stay, with the reason.
ALLOWED: Mapping[tuple[str, str], str] = {
    ("bench/operator_at_rest.py", "measure"): "it measures for a fixed time",
    ("bench/worker_peer_heartbeats.py", "beat"): PLAYED,
    ("demo/play.py", "Run._look"): PLAYED,
    ("demo/play.py", "Run._until"): "it ends early as soon as waiting is pointless, with the reason for its audience",
    ("e2e/handler.py", "handle"): "a handler in a pod, which has nothing of tests/",
    ("e2e/jobs.py", "Jobs.history"): FINAL,
    ("e2e/jobs.py", "jobs"): FINAL,
    ("e2e/operator_days/test_leases.py", "test_leases_of_a_killed_leader_are_kept_alive_and_handed_over"): ELAPSED,
    ("e2e/pool.py", "BasePool.wait_reported"): FINAL,
    ("e2e/pool.py", "BasePool.wait_source"): FINAL,
    ("e2e/harness.py", "_install"): FINAL,
    ("e2e/test_faults_of_the_cluster.py", "_allow"): FINAL,
    ("e2e/timeline.py", "Timeline.catch_up"): "the timeline itself catches up with the API server",
    ("e2e/test_task_store.py", "_kill_for_a_while"): PACE,
    ("faults/api.py", "Api.call"): "it repeats a call whose connection broke; None is an answer, too",
    ("faults/api.py", "Api.follow"): PLAYED,
    ("faults/kubelet.py", "Kubelet._environment"): PLAYED,
    ("faults/proxy.py", "Proxy._stream"): "the lateness is the fault",
    ("faults/replicas.py", "Replica._keep"): PLAYED,
    ("integration/backlog/test_taskstore.py", "test_new_instance_is_counted_at_once"): (
        "an announcement is held back for a while after the one before"
    ),
    ("integration/redis/test_kills.py", "_leased"): "it polls as the worker's runtime does",
    ("integration/reports/test_broken_connections.py", "test_broken_connection_is_not_logged"): (
        "the server notices the break before, while or after it answers"
    ),
    ("integration/steps/kills.py", "_runner.worked"): PLAYED,
    ("integration/steps/kills.py", "_watch.watched"): "it also ends when nothing has changed for two minutes",
    ("integration/steps/pool_tasks.py", "visit"): "a handler that works until its gate opens",
    ("integration/steps/pool_tasks.py", "visit_async"): "a handler that works until its gate opens",
    ("integration/steps/test_source_kills.py", "Workers.work_and_die"): PACE,
    ("integration/worker/handlers.py", "waits_at_the_gate"): "a handler that works until its gate opens",
    ("integration/worker/handlers.py", "waits_for_the_drain"): "a handler that works until its worker drains",
    ("integration/worker/test_health.py", "test_blocked_loop_is_noticed_once_it_runs_again"): ELAPSED,
    ("prepare/retries.py", "retried"): "it repeats a download whose connection broke, after growing pauses",
    ("soak/hostile.py", "Hostile._send"): PACE,
    ("soak/soak.py", "Soak._quiet_writes"): "it measures for a fixed time, again if the leader changed meanwhile",
    ("suites/runner.py", "Runner._await_ends"): "the runner of the suites, which has nothing to fail",
    ("suites/runner.py", "Runner._run"): "the runner of the suites, which has nothing to fail",
}


def _sleeps(node: ast.AST) -> bool:
    """Whether the node is a call of a sleep; sleep(0) only yields to the event loop."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    zero = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    return name == "sleep" and not zero


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of functions defined in it."""
    return _nodes_without_functions(function.body)


def _nodes_without_functions(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _nodes_without_functions(ast.iter_child_nodes(node))


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    """Yield every function with its qualified name, "Class.method" or "outer.inner"."""
    for node in ast.iter_child_nodes(tree):
        name = f"{outer}.{node.name}".lstrip(".") if hasattr(node, "name") else outer
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from functions(node, name if scope else outer)


def in_virtual_time(path: Path, root: Path) -> bool:
    """Whether the module, or a conftest.py above it, sets up a virtual clock."""
    above = [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(root)]
    return any(file.exists() and VIRTUAL in file.read_text(encoding="utf-8") for file in (path, *above))


def find(root: Path, patterns: Mapping[str, Pattern] = PATTERNS) -> list[Finding]:
    """Return all findings below a folder, allowed or not."""
    found: list[Finding] = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name == "eventually.py" or in_virtual_time(path, root):
            continue
        for function, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
            for pattern in patterns.values():
                if not name.startswith(pattern.folder):
                    continue
                places = [place for place in pattern.find(node) if isinstance(place, ast.stmt | ast.expr)]
                found += [Finding(name, place.lineno, function, pattern.problem) for place in places]
    return found


def complaints(found: Iterable[Finding], allowed: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a line for each finding that is not allowed, and for each allowance without a finding."""
    all_found = list(found)
    places = {(one.path, one.function) for one in all_found}
    wrong = [str(one) for one in all_found if (one.path, one.function) not in allowed]
    unused = [key for key in allowed if key not in places]
    return wrong + [f"tests/{path}: {name}: ALLOWED names it, and it has no such wait" for path, name in unused]


def main() -> int:
    """Print the complaints; 1 if there are any."""
    lines = complaints(find(TESTS), ALLOWED)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
