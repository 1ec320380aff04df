"""The handlers of a run with kills: each writes what it is about to do to a file, then does it, then that it has."""

import os
import random
import signal

from activity_worker import Activities, Retry, TaskRequest
from tests.integration.broker.worker_handlers import note

app = Activities()
#: What a try does, by its share of the tries: it succeeds, raises, exceeds its deadline, or kills its own process.
SHARES = {"ok": 0.86, "fail": 0.12, "spin": 0.01, "die": 0.01}
#: Tries in all.
ATTEMPTS = 3


@app.activity(name="play", namespace="kills", retry=Retry(attempts=ATTEMPTS, on=(ValueError,), delay=0))
def play(request: TaskRequest) -> None:
    """Begin, do what the dice say, and end."""
    path, number = request.input["path"], request.input["n"]
    assert request.task.activity is not None
    task_id = request.task.activity.id
    (what,) = random.SystemRandom().choices(list(SHARES), list(SHARES.values()))
    note(path, "begin", number, task_id, what)
    if what == "fail":
        raise ValueError("as the dice say")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while what == "spin":
        pass
    note(path, "end", number, task_id, what)
