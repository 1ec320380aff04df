"""Count the words of a text: the form of a handler that answers by itself, says how far it is, and stops when told.

Input:  {"path": "/data/book.txt"}
Output: {"lines": 1200, "words": 10450}
"""

from pathlib import Path

from activity_worker.activity import TaskRequest, TaskResponseToolkit

LINES_A_HEARTBEAT = 1000


async def handle(request: TaskRequest, respond: TaskResponseToolkit) -> None:
    """Answer with the number of lines and words, or fail with `WordCount.NoSuchText`."""
    path = Path(request.input["path"])
    if not path.is_file():
        await respond.failure("WordCount.NoSuchText", f"{path.name} is not a file that this worker can read")
        return
    lines = words = 0
    with path.open(encoding="utf-8") as text:
        for line in text:
            lines += 1
            words += len(line.split())
            if lines % LINES_A_HEARTBEAT == 0:
                # Raises when the task was cancelled, so the loop ends soon after nobody waits for it.
                await respond.heartbeat({"lines": lines})
    await respond.success({"lines": lines, "words": words})
