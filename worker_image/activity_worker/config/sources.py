"""Where the tasks come from, as flags or the environment say it: exactly one of the known sources."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activity_worker.config.reader import SettingsError, SettingsReader
from activity_worker.contract import Env
from activity_worker.wire.host_names import is_host_port
from activity_worker.wire.redis_keys import BLOCK_SECONDS
from activity_worker.wire.redis_url import RedisUrlError, parse_redis_url
from activity_worker.wire.store_url import StoreUrlError, check_store_url
from activity_worker.wire.taskbroker_signature import SecretsError, read_secrets

DEFAULT_LOCK_SECONDS = 180
DEFAULT_STORE_LEASE_SECONDS = 60.0
#: How a Redis job is concluded: with the published dialect's commands, or all at once by a script on the server.
DIALECT, ATOMIC = "dialect", "atomic"
#: How tasks of a taskbroker come: the worker asks for them, or the brokers push them.
PULL, PUSH = "pull", "push"
DEFAULT_PUSH_ADDRESS = "0.0.0.0:50052"
_LOOPBACK = frozenset({"127.0.0.1", "[::1]", "localhost"})

# AWS accounts have 12 digits; Step Functions Local names one with 10 (arn:aws:states:local:0123456789:activity:NAME).
_ARN = re.compile(r"arn:aws[a-z-]*:states:(?P<region>[a-z0-9-]+):[0-9]{10,12}:activity:[^\s:]{1,80}")
_DEFAULT_REGION = "AWS_DEFAULT_REGION"
_NAME = re.compile(r"\S{1,200}")
# The service takes no colon, slash, bar or control character in these names, nor the word arn alone.
_SWF_NAME = re.compile(r"(?!arn$)(?!\s)[^:/|\x00-\x1f\x7f-\x9f]{1,256}(?<!\s)")
_SOURCES = (
    ("activity-arn", Env.ACTIVITY_ARN),
    ("swf-domain", Env.SWF_DOMAIN),
    ("redis-url", Env.REDIS_URL),
    ("store-url", Env.STORE_URL),
    ("taskbroker", Env.TASKBROKER),
)


@dataclass(frozen=True, slots=True)
class StepFunctionsSettings:
    """An activity of AWS Step Functions. `region` falls back to the one in the ARN."""

    activity_arn: str
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class SwfSettings:
    """A task list in a domain of Amazon SWF.

    `register` has the worker register the activity types of its handlers when it starts.
    """

    domain: str
    task_list: str
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    register: bool = False


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """A queue of a flow on a Redis server; `url` may hold a password and is in no repr.

    `attributes` are the fields of a job that the handler gets; `next_queue` is where a job goes when its result does
    not say; `lock_seconds` is how long a job is this worker's, `renew_lock` whether that is prolonged while the handler
    works; `conclude` is `dialect` or `atomic`; `block_seconds` is how long a poll waits for a job.
    """

    url: str = field(repr=False)
    flow: str
    queue: str
    attributes: tuple[str, ...] = ()
    next_queue: str = ""
    lock_seconds: int = DEFAULT_LOCK_SECONDS
    renew_lock: bool = False
    conclude: str = DIALECT
    block_seconds: float = BLOCK_SECONDS


@dataclass(frozen=True, slots=True)
class TaskStoreSettings:
    """A store of durable multi-step tasks; `url` may hold a password and is in no repr."""

    url: str = field(repr=False)
    lease_seconds: float = DEFAULT_STORE_LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class TaskbrokerSettings:
    """Brokers that speak the protocol of taskbroker, each HOST:PORT; tasks come from all of them.

    None asks for the tasks of every application, or of every namespace. The first of `secrets` signs; `secrets` and
    `ca`, a certificate in PEM (b"": the system's), are in no repr. `tls` says whether the brokers speak TLS.

    With the delivery `push` the worker listens for pushes on `push_address`, HOST:PORT, with `push_tls`, a key and a
    chain in PEM (None: without TLS). `advertise` is its host as the brokers reach it, with which it registers there;
    None leaves it to the brokers' configuration.
    """

    addresses: tuple[str, ...]
    application: str | None = None
    namespace: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tls: bool = False
    ca: bytes = field(default=b"", repr=False)
    delivery: str = PULL
    push_address: str = DEFAULT_PUSH_ADDRESS
    advertise: str | None = None
    push_tls: tuple[bytes, bytes] | None = field(default=None, repr=False)


SourceSettings = StepFunctionsSettings | SwfSettings | RedisSettings | TaskStoreSettings | TaskbrokerSettings


def region_of(arn: str) -> str | None:
    """Return the region that an activity ARN names, or None if `arn` is not one."""
    match = _ARN.fullmatch(arn)
    return match["region"] if match else None


def read_source(read: SettingsReader) -> SourceSettings:
    """Return the one source that is named; raises `SettingsError` when none or several are."""
    named = [(flag, origin) for flag, env in _SOURCES for value, origin in [read.find(flag, env)] if value is not None]
    if len(named) > 1:
        raise SettingsError(f"{' and '.join(origin for _, origin in named)} name a source each: keep one of them")
    match [flag for flag, _ in named]:
        case ["swf-domain"]:
            return _swf(read)
        case ["redis-url"]:
            return _redis(read)
        case ["store-url"]:
            return _task_store(read)
        case ["taskbroker"]:
            return _taskbroker(read)
        case _:
            return _step_functions(read)


def aws_environment(source: SourceSettings, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which boto3 in a handler finds the worker's region and profile.

    boto3 reads `AWS_DEFAULT_REGION` and no `AWS_REGION`. A default region that `env` has stays as it is.
    """
    of_source = source if isinstance(source, StepFunctionsSettings | SwfSettings) else None
    region = (of_source and of_source.region) or env.get(Env.REGION) or env.get(_DEFAULT_REGION)
    found = {Env.REGION.value: region, _DEFAULT_REGION: env.get(_DEFAULT_REGION) or region} if region else {}
    if of_source is not None and of_source.profile:
        found["AWS_PROFILE"] = of_source.profile
    return found


def longest_task(source: SourceSettings, deadline_seconds: float | None) -> float | None:
    """Return a task's deadline: the one asked for, at most how long a job is ours if that is not prolonged."""
    if not isinstance(source, RedisSettings) or source.renew_lock:
        return deadline_seconds
    return min(deadline_seconds or math.inf, float(source.lock_seconds))


def longest_heartbeat(source: SourceSettings, interval_seconds: float) -> float:
    """Return the interval of task heartbeats: the one asked for, and at most what keeps a lock through a lost one."""
    return min(interval_seconds, source.lock_seconds / 3) if isinstance(source, RedisSettings) else interval_seconds


def _step_functions(read: SettingsReader) -> StepFunctionsSettings:
    arn = read.matching(
        "activity-arn",
        Env.ACTIVITY_ARN,
        _ARN,
        "an activity ARN such as arn:aws:states:us-east-1:123456789012:activity:NAME",
    )
    return StepFunctionsSettings(
        activity_arn=arn,
        region=read.text("region", Env.REGION) or region_of(arn),
        endpoint_url=read.url("endpoint-url", Env.ENDPOINT_URL),
        profile=read.text("profile", "AWS_PROFILE"),
    )


def _swf(read: SettingsReader) -> SwfSettings:
    expected = "a name of 1 to 256 characters without : / | and without spaces at its ends"
    return SwfSettings(
        domain=read.matching("swf-domain", Env.SWF_DOMAIN, _SWF_NAME, expected),
        task_list=read.matching("swf-task-list", Env.SWF_TASK_LIST, _SWF_NAME, expected),
        region=read.text("region", Env.REGION),
        endpoint_url=read.url("endpoint-url", Env.SWF_ENDPOINT_URL),
        profile=read.text("profile", "AWS_PROFILE"),
        register=read.choice("swf-register-activity-types", "false", ("true", "false"), Env.SWF_REGISTER) == "true",
    )


def _redis(read: SettingsReader) -> RedisSettings:
    return RedisSettings(
        url=_url(read, "redis-url", Env.REDIS_URL, parse_redis_url),
        flow=read.matching("redis-flow", Env.REDIS_FLOW, _NAME, "the name of the flow"),
        queue=read.matching("redis-queue", Env.REDIS_QUEUE, _NAME, "the name of the queue"),
        attributes=tuple(filter(None, (read.text("redis-attributes", Env.REDIS_ATTRIBUTES) or "").split(","))),
        next_queue=read.text("redis-next-queue", Env.REDIS_NEXT_QUEUE) or "",
        lock_seconds=read.count("redis-lock-seconds", Env.REDIS_LOCK_SECONDS, DEFAULT_LOCK_SECONDS, 1, 86_400)
        or DEFAULT_LOCK_SECONDS,
        renew_lock=read.choice("redis-renew-lock", "false", ("true", "false"), Env.REDIS_RENEW_LOCK) == "true",
        conclude=read.choice("redis-conclude", DIALECT, (DIALECT, ATOMIC), Env.REDIS_CONCLUDE),
        block_seconds=read.seconds("redis-block-seconds", Env.REDIS_BLOCK_SECONDS, BLOCK_SECONDS, 0.1) or BLOCK_SECONDS,
    )


def _task_store(read: SettingsReader) -> TaskStoreSettings:
    lease = read.seconds("store-lease-seconds", Env.STORE_LEASE_SECONDS, DEFAULT_STORE_LEASE_SECONDS, 1.0)
    return TaskStoreSettings(
        url=_url(read, "store-url", Env.STORE_URL, check_store_url), lease_seconds=lease or DEFAULT_STORE_LEASE_SECONDS
    )


def _taskbroker(read: SettingsReader) -> TaskbrokerSettings:
    ca = _file_or_text(read, "taskbroker-ca-file", Env.TASKBROKER_CA)
    delivery = read.choice("taskbroker-delivery", PULL, (PULL, PUSH), Env.TASKBROKER_DELIVERY)
    secrets = _secrets(read)
    return TaskbrokerSettings(
        addresses=_addresses(read),
        application=read.text("taskbroker-application", Env.TASKBROKER_APPLICATION),
        namespace=read.text("taskbroker-namespace", Env.TASKBROKER_NAMESPACE),
        secrets=secrets,
        # Who names a CA means TLS.
        tls=read.choice("taskbroker-tls", "true" if ca else "false", ("true", "false"), Env.TASKBROKER_TLS) == "true",
        ca=ca.encode(),
        delivery=delivery,
        **(_push(read, secrets) if delivery == PUSH else {}),
    )


def _push(read: SettingsReader, secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return how pushes are received."""
    value, origin = read.find("taskbroker-push-address", Env.TASKBROKER_PUSH_ADDRESS)
    address = value or DEFAULT_PUSH_ADDRESS
    host, _, port = address.rpartition(":")
    if not is_host_port(address) and not (host and port == "0"):
        raise SettingsError(f"{origin}={value!r}: expected HOST:PORT, such as {DEFAULT_PUSH_ADDRESS}")
    if not secrets and host not in _LOOPBACK:
        raise SettingsError(
            f"taskbroker-push-address={address}: without secrets everybody who reaches it could run handlers; "
            f"give --taskbroker-secrets-file ({Env.TASKBROKER_SECRETS}), or listen on 127.0.0.1"
        )
    return {"push_address": address, "advertise": _advertised(read), "push_tls": _push_tls(read)}


def _advertised(read: SettingsReader) -> str | None:
    host, origin = read.find("taskbroker-advertise", Env.TASKBROKER_ADVERTISE)
    shown = f"[{host}]" if host and ":" in host else host
    if host and not is_host_port(f"{shown}:1"):
        raise SettingsError(f"{origin}={host!r}: expected a host without a port, such as 10.0.0.7")
    return host or None


def _push_tls(read: SettingsReader) -> tuple[bytes, bytes] | None:
    chain = _file_or_text(read, "taskbroker-push-certificate-file", Env.TASKBROKER_PUSH_CERTIFICATE)
    key = _file_or_text(read, "taskbroker-push-key-file", Env.TASKBROKER_PUSH_KEY)
    if bool(chain) != bool(key):
        raise SettingsError("taskbroker-push-certificate-file and taskbroker-push-key-file belong together: give both")
    return (key.encode(), chain.encode()) if chain else None


def _addresses(read: SettingsReader) -> tuple[str, ...]:
    value, origin = read.find("taskbroker", Env.TASKBROKER)
    found = tuple((value or "").split(","))
    for address in found:
        if not is_host_port(address):
            expected = "expected HOST:PORT, or several with commas between them, such as broker-0:50051,broker-1:50051"
            raise SettingsError(f"{origin}={value!r}: {expected}")
    if len(set(found)) < len(found):
        raise SettingsError(f"{origin}={value!r}: a broker is named twice; name each one once")
    return found


def _secrets(read: SettingsReader) -> tuple[str, ...]:
    """Return the secrets of a JSON list; the error is without them."""
    text = _file_or_text(read, "taskbroker-secrets-file", Env.TASKBROKER_SECRETS)
    origin = read.find("taskbroker-secrets-file", Env.TASKBROKER_SECRETS)[1]
    try:
        return read_secrets(text)
    except SecretsError as error:
        raise SettingsError(f"{origin}: {error}") from None


def _file_or_text(read: SettingsReader, flag: str, env: Env) -> str:
    """Return the text of the file that a flag names, else the text in the variable, "" where there is neither."""
    value, origin = read.find(flag, env)
    if value is None or origin == env:
        return value or ""
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{origin}={value!r}: the file cannot be read: {type(error).__name__}") from None


def _url(read: SettingsReader, flag: str, env: Env, check: Callable[[str], object]) -> str:
    """Return a URL that passes `check`; the error is without the value, which may hold a password."""
    value, origin = read.find(flag, env)
    try:
        check(value or "")
    except (RedisUrlError, StoreUrlError) as error:
        raise SettingsError(f"{origin}: {error}") from None
    return value or ""
