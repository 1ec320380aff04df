"""Malformed ARNs with the message for each: one table for our own parser and for the API server's rules."""

GOOD_ARN = "arn:aws:states:us-east-1:123456789012:activity:resize-images"

#: Case, ARN, and a fragment of the error message.
MALFORMED = (
    ("not an ARN at all", "resize-images", "'resize-images' is not an ARN"),
    ("empty", "", "'' is not an ARN"),
    ("wrong prefix", "urn:aws:states:us-east-1:123456789012:activity:a", "is not an ARN; it must look like arn:aws:"),
    ("wrong partition", "arn:azure:states:us-east-1:123456789012:activity:a", "is not an ARN; it must look like"),
    ("too short", "arn:aws:states:us-east-1:123456789012", "is not an ARN; it must look like"),
    ("wrong service", "arn:aws:sqs:us-east-1:123456789012:activity:a", "is of the service 'sqs'"),
    ("missing region", "arn:aws:states::123456789012:activity:a", "has no region"),
    ("malformed region", "arn:aws:states:US_EAST:123456789012:activity:a", "has the malformed region 'US_EAST'"),
    ("missing account", "arn:aws:states:us-east-1::activity:a", "has no account"),
    ("malformed account", "arn:aws:states:us-east-1:12345:activity:a", "has the malformed account '12345'"),
    ("wrong resource", "arn:aws:states:us-east-1:123456789012:stateMachine:a", "names the resource 'stateMachine'"),
    ("missing name", "arn:aws:states:us-east-1:123456789012:activity", "missing or malformed activity name"),
    ("empty name", "arn:aws:states:us-east-1:123456789012:activity:", "missing or malformed activity name"),
    ("name with a space", "arn:aws:states:us-east-1:123456789012:activity:a b", "missing or malformed activity name"),
    ("name with a colon", "arn:aws:states:us-east-1:123456789012:activity:a:1", "missing or malformed activity name"),
    ("name with a backslash", r"arn:aws:states:us-east-1:123456789012:activity:a\b", "malformed activity name"),
    ("name with a quote", 'arn:aws:states:us-east-1:123456789012:activity:a"b', "malformed activity name"),
    ("name too long", f"arn:aws:states:us-east-1:123456789012:activity:{'a' * 81}", "malformed activity name"),
)

WELL_FORMED = (
    GOOD_ARN,
    "arn:aws-cn:states:cn-north-1:123456789012:activity:a",
    "arn:aws-us-gov:states:us-gov-west-1:123456789012:activity:a",
    "arn:aws:states:us-east-1:000000000000:activity:Name_with.dots-and-(parens)",
    f"arn:aws:states:us-east-1:123456789012:activity:{'a' * 80}",
)
