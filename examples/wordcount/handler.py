"""Count the words of a text file: a handler that answers by itself and reports its progress. It stops when cancelled.

Input:  {"path": "LICENSE"}, a file that the worker can read
Output: {"lines": 201, "words": 1581}
"""

from pathlib import Path

from activity_worker.activity import BlockingToolkit, TaskRequest

LINES_A_HEARTBEAT = 1000


def handle(request: TaskRequest, respond: BlockingToolkit) -> None:
    """Answer with the number of lines and words, or fail with `WordCount.NoSuchText`."""
    path = Path(request.input["path"])
    if not path.is_file():
        respond.failure("WordCount.NoSuchText", f"{path.name} is not a file that this worker can read")
        return
    lines = words = 0
    with path.open(encoding="utf-8") as text:
        for line in text:
            lines += 1
            words += len(line.split())
            if lines % LINES_A_HEARTBEAT == 0:
                # Raises when the service has given up on the task, so that the handler stops here.
                respond.heartbeat({"lines": lines})
    respond.success({"lines": lines, "words": words})
