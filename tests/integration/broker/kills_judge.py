"""PURE: what must hold after a run with kills, by the handlers' own log and the dead letters."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from activity_worker.taskbroker.lifecycle.inflight import FailureReason
from activity_worker.taskbroker.lifecycle.upkeep import DeadLetter
from activity_worker.taskbroker.protocol.activation import parse_activation
from tests.integration.broker.kills_handlers import ATTEMPTS


def is_at_most_once(number: int) -> bool:
    """Whether the task of a number is to run at most once: every fourth one."""
    return number % 4 == 0


def expires(number: int) -> bool:
    """Whether the task of a number expires before it is due."""
    return number % 50 == 1


@dataclass
class History:
    """What handlers wrote of a task: by activation, in the order of their first runs, what each run was to do."""

    begun: dict[str, list[str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    @property
    def runs(self) -> int:
        """How often a handler began."""
        return sum(map(len, self.begun.values()))


def histories(lines: Iterable[str]) -> Mapping[int, History]:
    """Return what the lines of the log say of each task."""
    found: dict[int, History] = defaultdict(History)
    for line in lines:
        event, number, task_id, what, _process = line.split()
        history = found[int(number)]
        if event == "begin":
            history.begun.setdefault(task_id, []).append(what)
        else:
            history.ended.add(task_id)
    return found


def judge(tasks: int, log: Iterable[str], letters: Sequence[DeadLetter], max_attempts: int) -> list[str]:
    """Return a sentence for everything that is wrong. `max_attempts`: how often a broker gives a task out."""
    found = histories(log)
    dead: dict[int, list[DeadLetter]] = defaultdict(list)
    for letter in letters:
        dead[int(parse_activation(letter.data).headers["n"])].append(letter)
    return [
        f"task {number}: {words}; {found.get(number)}, {dead[number]}"
        for number in range(tasks)
        for words in judge_task(number, found.get(number, History()), dead[number], max_attempts)
    ]


def judge_task(number: int, history: History, letters: Sequence[DeadLetter], max_attempts: int) -> Iterator[str]:
    """Yield what is wrong with a task that is over."""
    if expires(number):
        if history.runs or [letter.reason for letter in letters] != [FailureReason.EXPIRED]:
            yield "it expired, so it was to be a dead letter without a run"
        return
    if not history.ended and not letters:
        yield "it was lost: no handler came to its end, and there is no dead letter"
    if len(letters) > 1:
        yield "it has more than one dead letter"
    if is_at_most_once(number) and history.runs > 1:
        yield "it was to run at most once"
    yield from judge_retries(history, [letter.id for letter in letters])
    for letter in letters:
        yield from judge_letter(letter, history, 1 if is_at_most_once(number) else max_attempts)


def judge_retries(history: History, dead: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the activations of a task: each but the last one was retried for a reason."""
    if len({*history.begun, *dead}) > ATTEMPTS:
        yield f"it had more than {ATTEMPTS} attempts"
    last = dead[0] if dead else next(reversed(history.begun), "")
    for task_id, runs in history.begun.items():
        # On a busy machine a run may be ended at its deadline between its two lines.
        late = "ok" in runs and task_id not in history.ended
        if task_id != last and not late and not {"fail", "spin"} & set(runs):
            yield f"a retry was consumed by {task_id}, which did not fail"


def judge_letter(letter: DeadLetter, history: History, most: int) -> Iterator[str]:
    """Yield what is wrong with a dead letter; `most` is how often it may be given out."""
    retry = parse_activation(letter.data).retry
    assert retry is not None
    tried, runs = retry.attempts, history.begun.get(letter.id, [])
    if len(runs) > most:
        yield f"it was given out more than {most} times"
    if letter.reason is FailureReason.REPORTED:
        if not {"fail", "spin"} & set(runs) and ("ok" not in runs or letter.id in history.ended):
            yield "its failure was reported, and no run of it failed"
        if most > 1 and tried + 1 != ATTEMPTS:
            yield f"it failed for good with {tried + 1} attempts of {ATTEMPTS}"
    elif letter.attempts != tried + most:
        yield f"its deadlines passed {letter.attempts - tried} times, and {most} are allowed"
