"""The ARN of a Step Functions activity: its parts, and the reasons to refuse a malformed one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: The form of a valid ARN, for messages.
ACTIVITY_ARN_SHAPE = "arn:aws:states:REGION:ACCOUNT:activity:NAME"
#: The longest activityArn that GetActivityTask accepts (its API reference).
MAX_ARN_LENGTH = 256

# The CRD's rules use the same expressions in RE2, which has no look-around and no back references.
PARTITION_PATTERN = "^aws(-[a-z]+)*$"
REGION_PATTERN = "^[a-z0-9]+(-[a-z0-9]+)*$"
ACCOUNT_PATTERN = "^[0-9]{12}$"
#: Names of activities that CreateActivity accepts: 1 to 80 characters, without control characters and its list of
#: special ones. \s is avoided, because it matches more characters in Python than in RE2.
NAME_PATTERN = r"^[^\x00-\x20\x7f-\xa0<>{}\[\]?*\"#%\\^|~`$&,;:/]{1,80}$"


class MalformedArnError(ValueError):
    """The text is not the ARN of an activity; the message names the wrong part and the fix."""


@dataclass(frozen=True, slots=True)
class ActivityArn:
    """The parts of an activity's ARN that the operator uses."""

    partition: str
    region: str
    account: str
    name: str

    def __str__(self) -> str:
        return f"arn:{self.partition}:states:{self.region}:{self.account}:activity:{self.name}"


def parse_activity_arn(text: str) -> ActivityArn:
    """Return the parts of an activity's ARN. Raises MalformedArnError for the first wrong part."""
    for problem in arn_problems(text):
        raise MalformedArnError(problem)
    _, partition, _, region, account, _, name = text.split(":", 6)
    return ActivityArn(partition, region, account, name)


def arn_problems(text: str) -> Iterator[str]:
    """Yield a message for each wrong part of an activity's ARN, in order; none for a valid ARN."""
    parts = text.split(":")
    if parts[0] != "arn" or len(parts) < 6 or not re.fullmatch(PARTITION_PATTERN, parts[1]):
        yield f"'{text}' is not an ARN; it must look like {ACTIVITY_ARN_SHAPE}"
        return
    _, _, service, region, account, resource, *name = parts
    if service != "states":
        yield f"'{text}' is of the service '{service}'; an activity's ARN has 'states' there"
    if not region:
        yield f"'{text}' has no region; it must look like {ACTIVITY_ARN_SHAPE}"
    elif not re.fullmatch(REGION_PATTERN, region):
        yield f"'{text}' has the malformed region '{region}'; write one such as us-east-1"
    if not account:
        yield f"'{text}' has no account; it must look like {ACTIVITY_ARN_SHAPE}"
    elif not re.fullmatch(ACCOUNT_PATTERN, account):
        yield f"'{text}' has the malformed account '{account}'; it must be 12 digits"
    if resource != "activity":
        yield f"'{text}' names the resource '{resource}'; a pool works on an 'activity'"
    elif not re.fullmatch(NAME_PATTERN, ":".join(name)):
        yield f"'{text}' has a missing or malformed activity name; it must be 1 to 80 letters, digits, - or _"
