"""The arguments of `activity-worker conclude`."""

from typing import Any, Final

TOKEN_VARIABLE: Final = "ACTIVITY_TASK_TOKEN"  # noqa: S105 - a variable's name
SWF, STEP_FUNCTIONS = "swf", "step-functions"
_ACTIONS: Final = {
    "success": "conclude the task with an output",
    "failure": "fail the task",
    "cancelled": "conclude the task as cancelled, after a heartbeat has told that this is requested",
    "heartbeat": "keep the task alive; prints `cancellation requested` if it is",
}


def add_conclude(commands: Any) -> None:
    """Add the command `conclude`."""
    parser = commands.add_parser("conclude", help="conclude a task whose handler has raised ConcludeLater")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text)
        action.add_argument(
            "--service", choices=(SWF, STEP_FUNCTIONS), required=True, help="the service that has the task"
        )
        action.add_argument(
            "--token-file", metavar="FILE", help=f"the task's token; - is standard input (default: ${TOKEN_VARIABLE})"
        )
        for flag, what in (
            ("region", "default: the environment's or the profile's"),
            ("endpoint-url", "another service, such as an emulator"),
            ("profile", "a profile of the AWS configuration"),
        ):
            action.add_argument(f"--{flag}", dest=flag.replace("-", "_"), metavar=flag.upper(), help=what)
        if name == "success":
            action.add_argument("--output", metavar="JSON", default="null", help="the output (default: null)")
        elif name == "failure":
            action.add_argument("--error", metavar="NAME", default="", help="the error's name; on SWF the reason")
            action.add_argument("--cause", metavar="TEXT", default="", help="on SWF the details")
        else:
            action.add_argument("--details", metavar="TEXT", default="", help="a text for the decider (SWF)")
