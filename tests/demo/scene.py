"""What is known of the run at one moment, and how each piece of news changes it. Pure: time comes with the news."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tests.demo import plan
from tests.demo.facts import Pod, Pool, TaskLine
from tests.demo.happenings import Happening, remember

SUCCEEDED, RUNNING = "SUCCEEDED", "RUNNING"


class State(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    BUSY = "busy"
    IDLE = "idle"
    DRAINING = "draining"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Pods:
    """All pods there are."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class PodNews:
    """One pod, new or changed; or gone."""

    pod: Pod
    gone: bool = False


@dataclass(frozen=True, slots=True)
class LogNews:
    """A line about a task in the log of a pod."""

    uid: str
    line: TaskLine


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas that the pool's Deployments ask for, by name; all of them, or one that changed."""

    by_name: Mapping[str, int]
    all_of_them: bool = False


@dataclass(frozen=True, slots=True)
class OperatorSays:
    """A Kubernetes Event about the pool."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """So many executions have been started. The first is told with 0, just before its call."""

    count: int


@dataclass(frozen=True, slots=True)
class Statuses:
    """How many executions have which status, as the service lists them; or why it does not answer."""

    by_status: Mapping[str, int]
    problem: str = ""


News = Pods | PodNews | LogNews | Replicas | OperatorSays | Started | Statuses | Pool


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment. Times are seconds of one clock; None while the thing has not happened."""

    pool: Pool = field(default_factory=Pool)
    pool_since: float = 0.0
    pods: Mapping[str, Pod] = field(default_factory=dict)
    leases: Mapping[str, frozenset[str]] = field(default_factory=dict)
    replicas_by_name: Mapping[str, int] = field(default_factory=dict)
    started: int = 0
    began: float | None = None
    first_replica: float | None = None
    most_ready: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    problem_since: float | None = None
    ended_at: float | None = None
    said: str = ""
    said_at: float = 0.0
    story: tuple[Happening, ...] = ()
    sizes: tuple[tuple[float, int], ...] = ()

    @property
    def replicas(self) -> int:
        """Workers that the Deployments ask for."""
        return sum(self.replicas_by_name.values())

    @property
    def succeeded(self) -> int:
        """Executions that succeeded."""
        return self.statuses.get(SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        """Executions that ended otherwise."""
        return sum(count for status, count in self.statuses.items() if status not in {SUCCEEDED, RUNNING})

    @property
    def running(self) -> int:
        """Executions whose task is in a handler."""
        return min(sum(map(len, self.leases.values())), self.started - self.succeeded - self.failed)

    @property
    def queued(self) -> int:
        """Executions whose task waits, or is held for a worker to come."""
        return self.started - self.succeeded - self.failed - self.running

    @property
    def all_ended(self) -> bool:
        """Whether every execution has ended."""
        return self.succeeded + self.failed == plan.EXECUTIONS

    @property
    def at_zero(self) -> bool:
        """Whether no worker is wanted and none is there."""
        return not self.replicas and not self.pods

    def state(self, pod: Pod) -> State:
        """Return what a worker is doing."""
        if pod.leaving:
            return State.LEAVING
        if pod.cordoned:
            return State.DRAINING
        if self.leases.get(pod.uid):
            return State.BUSY
        return State.IDLE if pod.ready else State.STARTING

    def count(self, state: State) -> int:
        """Count the workers in a state."""
        return sum(1 for pod in self.pods.values() if self.state(pod) is state)

    def after(self, news: News, at: float) -> "Scene":
        """Return the scene with one piece of news, told at `at`."""
        match news:
            case Pods(pods):
                gone = [pod for uid, pod in self.pods.items() if uid not in {new.uid for new in pods}]
                changes = [PodNews(pod) for pod in pods] + [PodNews(pod, gone=True) for pod in gone]
                scene = self
                for change in changes:
                    scene = scene.after(change, at)
                return scene
            case PodNews(pod, gone):
                return self._with_pod(pod, gone, at)
            case LogNews(uid, line):
                return self._with_line(uid, line)
            case Replicas(by_name, all_of_them):
                return self._with_replicas(by_name if all_of_them else {**self.replicas_by_name, **by_name}, at)
            case OperatorSays(text, warning):
                return replace(self._told(Happening(at, text, bad=warning)), said=text, said_at=at)
            case Started(count):
                return replace(self, started=count, began=at if self.began is None else self.began)
            case Statuses():
                return self._with_statuses(news, at)
            case Pool():
                return replace(self, pool=news, pool_since=at if news.ready != self.pool.ready else self.pool_since)

    def _told(self, *happenings: Happening) -> "Scene":
        story = self.story
        for happening in happenings:
            story = remember(story, happening)
        return replace(self, story=story)

    def _with_pod(self, pod: Pod, gone: bool, at: float) -> "Scene":
        old = self.pods.get(pod.uid)
        if gone and old is None:
            return self
        pods = {uid: other for uid, other in self.pods.items() if uid != pod.uid}
        leases = self.leases
        if gone or (old is not None and pod.restarts != old.restarts):
            leases = {uid: held for uid, held in leases.items() if uid != pod.uid}
        if not gone:
            pods = {**self.pods, pod.uid: pod}
        ready = sum(1 for other in pods.values() if other.ready and not other.leaving)
        scene = replace(self, pods=pods, leases=leases, most_ready=max(self.most_ready, ready))
        return scene._told(*_pod_story(old, pod, gone, at))

    def _with_line(self, uid: str, line: TaskLine) -> "Scene":
        if uid not in self.pods:
            return self
        held = self.leases.get(uid, frozenset())
        held = held - {line.lease} if line.ended else held | {line.lease}
        return replace(self, leases={**self.leases, uid: held})

    def _with_replicas(self, by_name: Mapping[str, int], at: float) -> "Scene":
        scene = replace(self, replicas_by_name=dict(by_name))
        if scene.replicas != self.replicas or not self.sizes:
            scene = replace(scene, sizes=(*self.sizes, (at, scene.replicas)))
        if scene.replicas and self.first_replica is None and self.began is not None:
            first = Happening(at, f"the first replica is written, {at - self.began:.2f} s after the first execution")
            scene = replace(scene._told(first), first_replica=at)
        return scene

    def _with_statuses(self, news: Statuses, at: float) -> "Scene":
        if news.problem:
            since = at if self.problem_since is None else self.problem_since
            scene = replace(self, problem=news.problem, problem_since=since)
            return scene if self.problem else scene._told(Happening(at, news.problem, bad=True))
        scene = replace(self, statuses=dict(news.by_status), problem="", problem_since=None)
        if scene.failed > self.failed:
            scene = scene._told(Happening(at, f"{scene.failed} executions did not succeed", bad=True))
        if scene.all_ended and self.ended_at is None:
            last = Happening(at, f"the last execution has ended: {scene.succeeded} succeeded")
            scene = replace(scene._told(last), ended_at=at)
        return scene


def _pod_story(old: Pod | None, new: Pod, gone: bool, at: float) -> Iterator[Happening]:
    who = (new.short,)
    if gone:
        yield Happening(at, "has left", "have left", who)
        return
    if old is None:
        yield Happening(at, "starts", "start", who)
    before = old or Pod(new.uid, new.name)
    if new.ready and not before.ready and not before.cordoned:
        yield Happening(at, "is ready", "are ready", who)
    if new.cordoned and not before.cordoned:
        yield Happening(at, "drains: it asks for no more tasks", "drain: they ask for no more tasks", who)
    if before.cordoned and not new.cordoned:
        yield Happening(at, "is called back", "are called back", who)
    if new.leaving and not before.leaving and not new.cordoned:
        yield Happening(at, "is told to stop", "are told to stop", who)
    if new.trouble and (new.trouble, new.restarts) != (before.trouble, before.restarts):
        yield Happening(at, f"is in trouble: {new.trouble}", f"are in trouble: {new.trouble}", who, bad=True)
