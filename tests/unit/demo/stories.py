"""Short ways to tell of pods and runs."""

from collections.abc import Iterable
from dataclasses import replace

from tests.demo import plan
from tests.demo.facts import Pod, Pool, TaskLine
from tests.demo.scene import LogNews, News, PodNews, Replicas, Scene, Started, Statuses

READY = Pool("True", "ScaledToZero", "no work")


def pod(name: str, **facts: bool | int | str) -> Pod:
    """A pod whose UID is its name."""
    return replace(Pod(uid=name, name=f"demo-1-{name}"), **facts)  # type: ignore[arg-type]


def told(news: Iterable[tuple[float, News]], scene: Scene | None = None) -> Scene:
    """The scene after the news, each with its time."""
    scene = scene or Scene()
    for at, piece in news:
        scene = scene.after(piece, at)
    return scene


def begun(at: float = 100.0) -> Scene:
    """A pool that is Ready at zero, and all executions started at `at`."""
    return told([(at - 5, READY), (at - 5, Replicas({"d": 0}, all_of_them=True)), (at, Started(0)),
                 (at, Started(plan.EXECUTIONS))])  # fmt: skip


def task(uid: str, lease: str, *, ended: bool = False) -> LogNews:
    """A line of a worker's log."""
    return LogNews(uid, TaskLine(lease, ended))


def there_and_back() -> Scene:
    """A whole run that went well, over at 200."""
    names = [f"w{n}" for n in range(plan.MAX_WORKERS)]
    up = [(101.5, PodNews(pod(name, running=True, ready=True))) for name in names]
    gone = [(199.0, PodNews(pod(name, leaving=True), gone=True)) for name in names]
    return told(
        [(100.5, Replicas({"d": 1})), (101.0, Replicas({"d": plan.MAX_WORKERS})), *up,
         (150.0, Statuses({"SUCCEEDED": plan.EXECUTIONS, "RUNNING": 0})), (198.0, Replicas({"d": 0})), *gone],
        begun(),
    )  # fmt: skip
