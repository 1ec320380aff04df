"""The ARN of a Step Functions activity: taken apart, and refused with the reason."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: What a well-formed ARN looks like, for messages.
ACTIVITY_ARN_SHAPE = "arn:aws:states:REGION:ACCOUNT:activity:NAME"
#: The longest activityArn that GetActivityTask accepts (its API reference).
MAX_ARN_LENGTH = 256

# The same expressions are in the CRD's rules (RE2 there): keep them free of look-around and back references.
PARTITION_PATTERN = "^aws(-[a-z]+)*$"
REGION_PATTERN = "^[a-z0-9]+(-[a-z0-9]+)*$"
ACCOUNT_PATTERN = "^[0-9]{12}$"
#: Names of activities as CreateActivity takes them: 1 to 80 characters, none of its listed special ones, no control
#: characters. Not \s, which means more characters to Python than to RE2.
NAME_PATTERN = r"^[^\x00-\x20\x7f-\xa0<>{}\[\]?*\"#%\\^|~`$&,;:/]{1,80}$"


class MalformedArnError(ValueError):
    """The text is not the ARN of an activity; the message says which part is wrong and what belongs there."""


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
    """Take an activity's ARN apart. Raises MalformedArnError naming the first part that is wrong."""
    for problem in arn_problems(text):
        raise MalformedArnError(problem)
    _, partition, _, region, account, _, name = text.split(":", 6)
    return ActivityArn(partition, region, account, name)


def arn_problems(text: str) -> Iterator[str]:
    """Yield what is wrong with an activity's ARN, in the order of its parts; nothing when it is well formed."""
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
