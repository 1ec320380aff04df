"""The CRD's CEL rules and their messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from activity_operator.api.arn import (
    ACCOUNT_PATTERN,
    ACTIVITY_ARN_SHAPE,
    NAME_PATTERN,
    PARTITION_PATTERN,
    REGION_PATTERN,
)

#: The longest name of a pool: pods are named POOL-HASH-HASH-RANDOM and a pod's name is a label of 63 characters.
MAX_NAME_LENGTH = 47
#: Names of objects (RFC 1123 subdomains).
SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
#: The characters of an image's reference: HOST:PORT/PATH:TAG@DIGEST.
IMAGE_PATTERN = r"^[-a-zA-Z0-9._:/@+\[\]]+$"
#: A host name or an IPv4 address; an IPv6 address; a port.
HOST = r"([a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?\.?"
IPV6 = "[0-9a-fA-F:]+"
PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
CONTROL = r"[\x00-\x1f\x7f-\x9f]"
IMAGE_FIX = "has a character that no image reference has; write one such as registry.example.com/resize:1.4.2"


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule: the condition, and the message if it does not hold.

    `message` is plain text; the API server uses it if `expression` (CEL, with the value) is empty or fails. `field` is
    the JSON path of the field in the error, relative to the object that carries the rule.
    """

    rule: str
    message: str
    expression: str = ""
    field: str = ""

    def as_schema(self) -> dict[str, str]:
        """Return the rule as an entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "message": self.message}
        if self.expression:
            entry["messageExpression"] = self.expression
        if self.field:
            entry["fieldPath"] = self.field
        return entry


def attach(rules: Sequence[Rule]) -> dict[str, Any]:
    """Return the schema extension that carries the rules."""
    return {"x-kubernetes-validations": [rule.as_schema() for rule in rules]}


def literal(text: str) -> str:
    """Return the text as a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(value: str, before: str, after: str) -> str:
    """Return a CEL expression for the text `before`, the value in quotes, and the text `after`."""
    return f"{literal(before + chr(39))} + {value} + {literal(chr(39) + after)}"


def quoting(rule: str, text: str) -> Rule:
    """Return a rule whose message is the value in quotes and then `text`."""
    return Rule(rule, text, quoted("self", "", f" {text}"))


def printable(value: str, before: str, after: str) -> str:
    """Return the same CEL as `quoted`, without the value if it has control characters: a terminal would obey them."""
    hidden = literal(f"{before.strip()} {after.strip()}".strip())
    return f"{value}.matches({literal(CONTROL)}) ? {hidden} : {quoted(value, before, after)}"


# The rules for the parts of an ARN apply only to a text that is an ARN, so `foo` gets one message instead of five.
_PARTS = "self.split(':')"
_IS_ARN = f"{_PARTS}.size() >= 6 && {_PARTS}[0] == 'arn' && {_PARTS}[1].matches({literal(PARTITION_PATTERN)})"


def _arn_part(check: str, message: str, expression: str) -> Rule:
    return Rule(f"!({_IS_ARN}) || {check}", message, expression)


ACTIVITY_ARN = (
    quoting(
        _IS_ARN,
        f"is not an ARN; it must look like {ACTIVITY_ARN_SHAPE}",
    ),
    _arn_part(
        f"{_PARTS}[2] == 'states'",
        "is of another service; an activity's ARN has 'states' there",
        f"{quoted('self', '', ' is of the service ')} + "
        + quoted(f"{_PARTS}[2]", "", "; an activity's ARN has 'states' there"),
    ),
    _arn_part(
        f"{_PARTS}[3].matches({literal(REGION_PATTERN)})",
        f"has no region; it must look like {ACTIVITY_ARN_SHAPE}",
        f"{_PARTS}[3] == '' ? {quoted('self', '', f' has no region; it must look like {ACTIVITY_ARN_SHAPE}')} : "
        f"{quoted('self', '', ' has the malformed region ')} + "
        + quoted(f"{_PARTS}[3]", "", "; write one such as us-east-1"),
    ),
    _arn_part(
        f"{_PARTS}[4].matches({literal(ACCOUNT_PATTERN)})",
        f"has no account; it must look like {ACTIVITY_ARN_SHAPE}",
        f"{_PARTS}[4] == '' ? {quoted('self', '', f' has no account; it must look like {ACTIVITY_ARN_SHAPE}')} : "
        f"{quoted('self', '', ' has the malformed account ')} + "
        + quoted(f"{_PARTS}[4]", "", "; it must be 12 digits"),
    ),
    _arn_part(
        f"{_PARTS}[5] == 'activity'",
        "names another resource; a pool works on an 'activity'",
        f"{quoted('self', '', ' names the resource ')} + "
        + quoted(f"{_PARTS}[5]", "", "; a pool works on an 'activity'"),
    ),
    _arn_part(
        f"{_PARTS}[5] != 'activity' || ({_PARTS}.size() == 7 && {_PARTS}[6].matches({literal(NAME_PATTERN)}))",
        "has a missing or malformed activity name; it must be 1 to 80 letters, digits, - or _",
        quoted("self", "", " has a missing or malformed activity name; it must be 1 to 80 letters, digits, - or _"),
    ),
)

#: The members of `source`, by their names in YAML. Further sources are added here and in `spec.Source`.
SOURCE_MEMBERS = ("stepFunctions", "swf", "redis", "taskStore", "taskbroker")
_MEMBER_COUNT = f"[{', '.join(f'has(self.{member})' for member in SOURCE_MEMBERS)}].filter(given, given).size()"
SOURCE = (Rule(f"{_MEMBER_COUNT} == 1", f"source needs exactly one member of: {', '.join(SOURCE_MEMBERS)}"),)


def _effective_arn(spec: str) -> str:
    in_source = f"{spec}.source.stepFunctions"
    return (
        f"(has({spec}.activityArn) ? {spec}.activityArn : "
        f"has({spec}.source) && has({in_source}) ? {in_source}.activityArn : '')"
    )


def _is_swf(spec: str) -> str:
    return f"(has({spec}.source) && has({spec}.source.swf))"


def _task_list(spec: str) -> str:
    """Return CEL for the domain and the task list as one text; names have no slash. It is '' for another source."""
    swf = f"{spec}.source.swf"
    return f"({_is_swf(spec)} ? {swf}.domain + '/' + {swf}.taskList : '')"


SPEC = (
    Rule(
        "has(self.activityArn) != has(self.source)",
        "exactly one of activityArn and source must be set",
        "has(self.source) ? 'activityArn and source are both set; keep exactly one of them' : "
        "'neither activityArn nor source is set; set exactly one of them'",
    ),
    Rule(
        "self.minWorkers <= self.maxWorkers",
        "minWorkers must not be greater than maxWorkers; lower it or raise maxWorkers",
        "'minWorkers %d is greater than maxWorkers %d; lower it or raise maxWorkers'"
        ".format([self.minWorkers, self.maxWorkers])",
        ".minWorkers",
    ),
    Rule(
        "self.activation.mode != 'None' || self.minWorkers >= 1 || has(self.scaling.prometheus)",
        "activation.mode None needs minWorkers of at least 1, or scaling.prometheus: with neither sentinel nor counts "
        "nobody notices work at zero",
        field=".minWorkers",
    ),
    Rule(
        f"self.activation.mode != 'CloudWatch' || {_effective_arn('self')} != ''",
        "activation.mode CloudWatch counts a Step Functions activity's tasks; this source is counted by itself: remove "
        "activation.mode",
        field=".activation.mode",
    ),
    Rule(
        f"{_effective_arn('self')} != '' || {_is_swf('self')} || !has(self.aws) || !(has(self.aws.region) || "
        "has(self.aws.endpointUrl) || has(self.aws.cloudWatchEndpointUrl) || has(self.aws.roleArn))",
        "aws is for Step Functions activities and Amazon SWF; this source does not use it: remove it",
    ),
    Rule(
        f"!{_is_swf('self')} || has(self.aws) && has(self.aws.region)",
        "source.swf needs aws.region: write the domain's region, such as us-east-1",
        field=".aws",
    ),
    Rule(
        f"!{_is_swf('self')} || !has(self.aws) || !has(self.aws.cloudWatchEndpointUrl)",
        "aws.cloudWatchEndpointUrl is for Step Functions activities; source.swf does not use it: remove it",
        field=".aws",
    ),
    Rule(
        f"{_task_list('self')} == {_task_list('oldSelf')}",
        "domain and task list of a pool cannot be changed; make a new pool for another task list",
        f"{_task_list('oldSelf')} == '' ? 'this source cannot be changed to a task list of Amazon SWF; make a new pool "
        "for it' : 'domain and task list cannot be changed (they are ' + "
        f"{_task_list('oldSelf')} + '); make a new pool for another source'",
        ".source",
    ),
    Rule(
        f"{_effective_arn('self')} != '' || ({_is_swf('self')} && self.source.swf.pollAtZero) || "
        "!has(self.activation.holdSeconds)",
        "activation.holdSeconds is for tasks that the operator holds; it takes none from this source: remove it",
        field=".activation.holdSeconds",
    ),
    Rule(
        f"{_effective_arn('self')} == {_effective_arn('oldSelf')}",
        "the activity's ARN cannot be changed; make a new pool for another activity",
        f"{_effective_arn('oldSelf')} == '' ? 'this source cannot be changed to an activity; make a new pool for it' : "
        f"{_effective_arn('self')} == '' ? 'the activity (it is ' + {_effective_arn('oldSelf')} + ') cannot be changed "
        "to another source; make a new pool for that' : 'the activity\\'s ARN cannot be changed (it is ' + "
        f"{_effective_arn('oldSelf')} + '); make a new pool for another activity'",
    ),
)

IMAGE = (
    Rule(
        "!self.matches('\\\\s')",
        "handlerImage must be an image reference without spaces, such as registry.example.com/resize:1.4.2",
        quoted("self", "handlerImage ", " has a space; write a reference such as registry.example.com/resize:1.4.2"),
    ),
    Rule(
        f"self.matches('\\\\s') || self.matches({literal(IMAGE_PATTERN)})",
        f"handlerImage {IMAGE_FIX}",
        printable("self", "handlerImage ", f" {IMAGE_FIX}"),
    ),
)
#: `minimum` is not enough: the API server rounds it down to 0 when the value is a whole number such as 0.
TARGET_UTILIZATION = (Rule("self >= 0.01", "targetUtilization must be from 0.01 to 1"),)
REGION = (
    quoting(
        f"self.matches({literal(REGION_PATTERN)})",
        "is not a region; write one such as us-east-1",
    ),
)


#: CEL: an http or https URL with a valid host and port.
_HTTP = rf"^https?://({HOST}|\[{IPV6}\])(:{PORT})?([/?#].*)?$"
HTTP_URL = f"isURL(self) && self.matches({literal(_HTTP)})"


def _endpoint_url(field: str, example: str) -> tuple[Rule, ...]:
    # The URL must have no credentials, because logs and messages repeat it.
    return (
        Rule(
            f"{HTTP_URL} && !self.contains('@')",
            f"{field} must be an http or https URL without credentials, such as {example}",
        ),
    )


ENDPOINT_URL = _endpoint_url("endpointUrl", "https://states.internal.example.com")
CLOUDWATCH_ENDPOINT_URL = _endpoint_url("cloudWatchEndpointUrl", "https://monitoring.internal.example.com")
ROLE_ARN = (
    quoting(
        "self.matches('^arn:aws(-[a-z]+)*:iam::[0-9]{12}:role/[!-~]+$')",
        "is not the ARN of an IAM role; it must look like arn:aws:iam::ACCOUNT:role/NAME",
    ),
)
SERVICE_ACCOUNT_NAME = (
    quoting(
        f"self.matches({literal(SUBDOMAIN_PATTERN)})",
        "is not the name of a ServiceAccount; it has lower-case letters, digits, - and .",
    ),
)

#: Rules of the whole object. Only these can read the object's name.
POOL = (
    Rule(
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
        f"a pool's name has at most {MAX_NAME_LENGTH} characters, so that its pods' names fit into 63",
        f"'the name has %d characters; a pool\\'s name has at most {MAX_NAME_LENGTH}, "
        "so that its pods\\' names fit into 63'"
        ".format([self.metadata.name.size()])",
        ".metadata.name",
    ),
    Rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "a pool's name starts with a letter and has only lower-case letters, digits and -",
        quoted(
            "self.metadata.name",
            "the name ",
            " does not fit; a pool's name starts with a letter and has only lower-case letters, digits and -",
        ),
        ".metadata.name",
    ),
)

#: Rules for labels and annotations of the pod template: the operator selects pods by its own keys.
OWN_KEYS = (
    Rule(
        "self.all(key, !key.startsWith('activitypools.dev/'))",
        "keys under activitypools.dev/ are the operator's own; remove them",
        quoted(
            "self.filter(key, key.startsWith('activitypools.dev/'))[0]",
            "keys under activitypools.dev/ are the operator's own; remove ",
            "",
        ),
    ),
)
