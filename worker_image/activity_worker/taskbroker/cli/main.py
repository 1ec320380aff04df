"""`activity-worker broker` and `activity-worker dead-letters …`."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.config.logging import set_up_logs
from activity_worker.config.reader import UsageError
from activity_worker.config.spans import parse_seconds
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE
from activity_worker.database.engine import file_of
from activity_worker.database.errors import describe_error
from activity_worker.errors import PortError
from activity_worker.taskbroker.broker.limits import StoreLimits
from activity_worker.taskbroker.broker.listed_workers import ListedWorkers, WorkerMapError, read_worker_map
from activity_worker.taskbroker.broker.service import Delivery
from activity_worker.taskbroker.cli import letters_output
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, serve_until_signal
from activity_worker.taskbroker.cli.kafka_flags import kafka_settings
from activity_worker.taskbroker.cli.parser import DEFAULT_STORE, SECRETS, STORE, WORKER_MAP
from activity_worker.taskbroker.kafka.client import KafkaMissingError
from activity_worker.taskbroker.kafka.settings import KafkaSettingsError
from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore
from activity_worker.taskbroker.store.dead_letters import (
    StoredDeadLetter,
    TaskInFlightError,
    UnknownDeadLetterError,
    get_dead_letter,
    list_dead_letters,
    purge_dead_letters,
    requeue_dead_letter,
)
from activity_worker.wire.store_url import StoreUrlError
from activity_worker.wire.taskbroker_signature import SecretsError, read_secrets


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints: for a person, and with --json."""

    text: str
    data: Mapping[str, Any]


def main(args: Mapping[str, Any]) -> int:
    """Run a command and return the exit code: 0, 1 (error), 2 (usage)."""
    if args["command"] == "dead-letters" and args["letters_command"] is None:
        args["letters_parser"].print_usage(sys.stderr)
        return EXIT_USAGE
    try:
        asyncio.run(_broker(args) if args["command"] == "broker" else _letters(args))
    except UsageError as error:
        return _fail(args, error, EXIT_USAGE)
    except StoreUrlError as error:
        return _fail(args, f"{_origin(args)}: {error}", EXIT_USAGE)
    except KafkaSettingsError as error:
        return _fail(args, error, EXIT_USAGE)
    except (KafkaMissingError, PortError, UnknownDeadLetterError, TaskInFlightError) as error:
        return _fail(args, error, EXIT_ERROR)
    except (SQLAlchemyError, OSError) as error:
        return _fail(args, f"the store cannot be used: {describe_error(error, _origin(args))}", EXIT_ERROR)
    return 0


def _fail(args: Mapping[str, Any], error: object, code: int) -> int:
    line = json.dumps({"error": str(error)}) if args.get("json") else f"activity-worker {args['command']}: {error}"
    print(line, file=sys.stderr)  # noqa: T201 - a command line's answer
    return code


def _origin(args: Mapping[str, Any]) -> str:
    return "--store" if args["store"] else STORE


def _url(args: Mapping[str, Any]) -> str:
    return args["store"] or os.environ.get(STORE) or DEFAULT_STORE


async def _broker(args: Mapping[str, Any]) -> None:
    for flag in ("max_pending", "max_processing", "max_attempts"):
        if args[flag] < 1:
            raise UsageError(f"--{flag.replace('_', '-')} is at least 1, not {args[flag]}")
    for flag in ("grace_seconds", "deadline_pause_seconds"):
        if not 0 <= args[flag] < float("inf"):
            raise UsageError(f"--{flag.replace('_', '-')} is 0 or more seconds, not {args[flag]:g}")
    if (port := args["health_port"]) is not None and not 0 <= port <= 65_535:
        raise UsageError(f"--health-port is a number from 0 to 65535, not {port}")
    host, _, number = args["address"].rpartition(":")
    if not host or not number.isdecimal() or int(number) > 65_535:
        raise UsageError(f"--address is HOST:PORT, such as 0.0.0.0:50051, not {args['address']!r}")
    options = BrokerOptions(
        address=args["address"],
        secrets=_secrets(args["secrets_file"]),
        tls=_tls(args["tls_certificate"], args["tls_key"]),
        policy=BrokerPolicy(args["grace_seconds"], args["max_attempts"]),
        limits=StoreLimits(args["max_pending"], args["max_processing"]),
        deadline_pause_seconds=args["deadline_pause_seconds"],
        health_port=port,
        kafka=kafka_settings(args, os.environ),
        delivery=Delivery(args["delivery"]),
        worker_map=_worker_map(args["worker_map"], args["delivery"]),
        worker_tls_root=None if args["worker_ca"] is None else _read("--worker-ca", args["worker_ca"]),
        worker_tls_name=args["worker_tls_name"] or "",
    )
    if options.worker_tls_name and options.worker_tls_root is None:
        raise UsageError("--worker-tls-name needs --worker-ca: give both, or none for workers without TLS")
    set_up_logs(args["log_format"])
    await serve_until_signal(_url(args), options)


def _secrets(file: str | None) -> tuple[str, ...]:
    origin = SECRETS if file is None else f"--secrets-file {file}"
    text = os.environ.get(SECRETS, "") if file is None else _read("--secrets-file", file).decode("utf-8", "replace")
    try:
        found = read_secrets(text)
    except SecretsError as error:
        raise UsageError(f"{origin}: {error}") from None
    if file is not None and not found:
        raise UsageError(f"{origin}: the file is empty; without --secrets-file calls need no signature")
    return found


def _worker_map(file: str | None, delivery: str) -> Sequence[ListedWorkers]:
    origin = WORKER_MAP if file is None else f"--worker-map {file}"
    text = os.environ.get(WORKER_MAP, "") if file is None else _read("--worker-map", file).decode("utf-8", "replace")
    try:
        found = read_worker_map(text)
    except WorkerMapError as error:
        raise UsageError(f"{origin}: {error}") from None
    if found and delivery == "pull":
        raise UsageError(f"{origin}: with --delivery pull nothing is pushed; use push or both, or leave the map out")
    return found


def _tls(certificate: str | None, key: str | None) -> tuple[bytes, bytes] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-certificate and --tls-key belong together: give both")
    return _read("--tls-key", key), _read("--tls-certificate", certificate)


def _read(flag: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{flag}: {file} cannot be read: {error.strerror}") from None


async def _letters(args: Mapping[str, Any]) -> None:
    url = _url(args)
    file = file_of(url)
    if file is not None and not file.exists():
        # Opening it would create an empty store, and a mistyped path would show no letters instead of an error.
        raise UsageError(f"there is no store at {file}: correct --store or {STORE}; `activity-worker broker` makes one")
    store = await BrokerStore.open(url)
    try:
        answer = await _COMMANDS[args["letters_command"]](store, args)
    finally:
        await store.close()
    print(json.dumps(answer.data) if args["json"] else answer.text)  # noqa: T201 - what was asked for


async def _list(store: BrokerStore, args: Mapping[str, Any]) -> Answer:
    if args["limit"] < 1:
        raise UsageError(f"--limit is at least 1, not {args['limit']}")
    found = await list_dead_letters(store, namespace=args["namespace"], limit=args["limit"])
    records = [letters_output.record(one) for one in found]
    return Answer(letters_output.table(found, time.time()) if found else "no dead letters", {"deadLetters": records})


async def _show(store: BrokerStore, args: Mapping[str, Any]) -> Answer:
    stored = StoredDeadLetter(args["number"], await get_dead_letter(store, args["number"]))
    record = letters_output.full_record(stored, parameters=args["parameters"])
    return Answer("\n".join(f"{name:18}{value}" for name, value in record.items()), record)


async def _requeue(store: BrokerStore, args: Mapping[str, Any]) -> Answer:
    ids = [await requeue_dead_letter(store, number) for number in args["number"]]
    return Answer("\n".join(f"{one} is pending" for one in ids), {"requeued": ids})


async def _purge(store: BrokerStore, args: Mapping[str, Any]) -> Answer:
    span = args["older_than"]
    if bool(args["number"]) == (span is not None):
        raise UsageError("give the numbers of dead letters, or --older-than SPAN")
    if span is None:
        count = await purge_dead_letters(store, numbers=args["number"])
    else:
        count = await purge_dead_letters(store, before=time.time() - _span(span))
    return Answer(f"{count} dead letter{'' if count == 1 else 's'} deleted", {"deleted": count})


_COMMANDS: Mapping[str, Callable[[BrokerStore, Mapping[str, Any]], Awaitable[Answer]]] = {
    "list": _list,
    "show": _show,
    "requeue": _requeue,
    "purge": _purge,
}


def _span(given: str) -> float:
    try:
        return parse_seconds(given)
    except ValueError:
        expected = "a span of time with its unit, such as '12h' or '30d'"
        raise UsageError(f"--older-than: {given!r} is not {expected}") from None
