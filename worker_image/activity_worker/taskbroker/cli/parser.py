"""The commands of the broker. Nothing of the store or of gRPC is imported: `activity-worker run` starts as fast."""

from typing import Any, Final

from activity_worker.config.logging import LOG_FORMATS
from activity_worker.taskbroker.cli.kafka_flags import add_kafka_flags

#: The environment variables of the broker, of people who look after it, and of producers.
STORE: Final = "ACTIVITY_BROKER_STORE_URL"
SECRETS: Final = "ACTIVITY_BROKER_SECRETS"
WORKER_MAP: Final = "ACTIVITY_BROKER_WORKER_MAP"
#: Where activations are kept unless a URL is given: a file in the working directory.
DEFAULT_STORE: Final = "sqlite:///taskbroker.db"
DEFAULT_ADDRESS: Final = "127.0.0.1:50051"


def add_parser(commands: Any) -> None:
    """Add `broker` and `dead-letters` to the command line."""
    broker = commands.add_parser("broker", help="a taskbroker: keep tasks and give them to workers; until SIGTERM")
    _add_store(broker)
    broker.add_argument(
        "--address", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=f"for gRPC; default {DEFAULT_ADDRESS}"
    )
    broker.add_argument(
        "--secrets-file",
        metavar="FILE",
        help=f'a JSON list of secrets that sign calls, such as ["new", "old"] (environment: {SECRETS}); default none',
    )
    broker.add_argument("--tls-certificate", metavar="FILE", help="a chain in PEM; default: no TLS")
    broker.add_argument("--tls-key", metavar="FILE", help="its key in PEM")
    for flag, default, text in (
        ("max-pending", 1_000_000, "refuse new tasks while so many wait"),
        ("max-processing", 100_000, "refuse new tasks while workers have so many"),
        ("max-attempts", 5, "give a task out so often before its last deadline fails it"),
    ):
        broker.add_argument(f"--{flag}", type=int, default=default, metavar="N", help=f"{text}; default {default}")
    for flag, seconds, text in (
        ("grace-seconds", 3.0, "beyond a task's deadline, for its worker's report"),
        ("deadline-pause-seconds", 60.0, "after a start in which no deadline passes"),
    ):
        help_text = f"{text}; default {seconds:g}"
        broker.add_argument(f"--{flag}", type=float, default=seconds, metavar="SECONDS", help=help_text)
    add_kafka_flags(broker)
    _add_push(broker)
    broker.add_argument("--health-port", type=int, metavar="PORT", help="for /livez /readyz /metrics; default none")
    formats = "auto is text on a terminal, else json"
    broker.add_argument("--log-format", choices=LOG_FORMATS, default="auto", help=formats)
    _add_dead_letters(commands)


def _add_push(broker: Any) -> None:
    broker.add_argument(
        "--delivery",
        choices=("pull", "push", "both"),
        default="both",
        help="pull: workers ask for tasks; push: they get them; both (default): each worker as it wants",
    )
    example = '[{"application": "shop", "addresses": ["worker:50052"]}]'
    broker.add_argument(
        "--worker-map",
        metavar="FILE",
        help=f"workers that get tasks and do not register, such as {example} (environment: {WORKER_MAP}, with JSON)",
    )
    broker.add_argument("--worker-ca", metavar="FILE", help="the CA of workers that speak TLS, in PEM; default: no TLS")
    text = "the name in the certificates of workers that register"
    broker.add_argument("--worker-tls-name", metavar="NAME", help=text)


def _add_dead_letters(commands: Any) -> None:
    letters = commands.add_parser("dead-letters", help="failed tasks that a broker keeps: look, requeue, purge")
    letters.set_defaults(letters_parser=letters)
    under = letters.add_subparsers(dest="letters_command", metavar="COMMAND")
    listed = _letters_command(under, "list", "list dead letters, the newest first")
    listed.add_argument("--namespace", metavar="NAME", help="of this namespace; default all")
    listed.add_argument("--limit", type=int, default=50, metavar="N", help="default 50")
    show = _letters_command(under, "show", "show a dead letter")
    show.add_argument("number", type=int, help="its number in the list")
    show.add_argument("--parameters", action="store_true", help="with the task's arguments, which may be secret")
    requeue = _letters_command(under, "requeue", "let tasks begin again, without attempts")
    requeue.add_argument("number", type=int, nargs="+", help="their numbers in the list")
    purge = _letters_command(under, "purge", "delete dead letters")
    purge.add_argument("number", type=int, nargs="*", help="their numbers in the list")
    purge.add_argument("--older-than", metavar="SPAN", help="all that are older, such as 30d")


def _letters_command(under: Any, name: str, text: str) -> Any:
    parser = under.add_parser(name, help=text)
    _add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, errors too")
    return parser


def _add_store(parser: Any) -> None:
    text = f"sqlite:///FILE or postgresql://USER@HOST/NAME (environment: {STORE}); default {DEFAULT_STORE}"
    parser.add_argument("--store", metavar="URL", default="", help=text)
