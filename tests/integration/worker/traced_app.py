"""A registry whose tasks are traced, for tests that run it in a worker."""

import logging
import os
import signal
from typing import Any

from activity_worker import Activities
from activity_worker.middleware import trace_calls

app = Activities()
trace_calls(app)


@app.activity(name="work")
def work(job: dict[str, Any]) -> None:
    logging.getLogger("shop").info("working")
    if job.get("raise"):
        raise ValueError("no such picture")
    if job.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
