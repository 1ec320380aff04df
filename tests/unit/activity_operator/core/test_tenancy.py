"""The tenancy policy: which namespaces may use which activities, roles and endpoints."""

import pytest

from activity_operator.core.tenancy import PolicyError, TenancyPolicy, TenancyRule, parse_policy

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
ROLE = "arn:aws:iam::123456789012:role/team-a"


def test_without_a_policy_any_arn_may_be_used() -> None:
    assert TenancyPolicy().refusal("anywhere", ARN) == ""


def test_without_a_policy_no_role_and_no_endpoint_may_be_used() -> None:
    assert "spec.aws.roleArn" in TenancyPolicy().refusal("anywhere", ARN, ROLE)
    assert "spec.aws.endpointUrl" in TenancyPolicy().refusal("anywhere", ARN, "", "http://169.254.169.254/")
    assert "spec.aws.cloudWatchEndpointUrl" in TenancyPolicy().refusal(
        "anywhere", ARN, "", "", "http://169.254.169.254/"
    )


def test_both_endpoints_must_be_allowed_by_the_rule_that_allows_the_arn() -> None:
    other = ARN.replace("resize", "billing")
    policy = TenancyPolicy(
        (
            TenancyRule(("a",), (ARN,), (), ("http://sfn", "http://cw")),
            TenancyRule(("a",), (other,), (), ("http://sfn",)),
        )
    )

    assert policy.refusal("a", ARN, "", "http://sfn", "http://cw") == ""
    assert "and spec.aws.cloudWatchEndpointUrl 'http://cw' together" in policy.refusal(
        "a", other, "", "http://sfn", "http://cw"
    )


def test_domains_of_swf_are_limited_by_globs_of_their_own() -> None:
    policy = TenancyPolicy((TenancyRule(("team-a",), swf_domains=("team-a-*",)), TenancyRule(("team-b",))))

    assert policy.refusal("team-a", "", swf_domain="team-a-shop") == ""
    assert policy.refusal("team-a", "", swf_domain="shop").startswith(
        "spec.source.swf.domain 'shop' is not allowed in namespace team-a by the tenancy policy"
    )
    assert policy.refusal("team-b", "", swf_domain="shop") == ""


def test_role_of_one_rule_does_not_allow_the_domain_of_another() -> None:
    one, other = TenancyRule(("a",), role_arns=(ROLE,), swf_domains=("one",)), TenancyRule(("a",), swf_domains=("two",))

    assert "together" in TenancyPolicy((one, other)).refusal("a", "", ROLE, swf_domain="two")


def test_namespace_without_a_rule_may_use_nothing() -> None:
    policy = TenancyPolicy((TenancyRule(namespaces=("team-a",)),))

    assert policy.refusal("team-a", ARN) == ""
    assert "no rule for namespace team-b" in policy.refusal("team-b", ARN)


def test_globs_match_namespaces_and_arns() -> None:
    policy = TenancyPolicy((TenancyRule(("team-*",), ("arn:aws:states:*:123456789012:activity:*",)),))

    assert policy.refusal("team-a", ARN) == ""
    assert "is not allowed in namespace team-a" in policy.refusal("team-a", ARN.replace("1234", "9999"))


def test_role_of_one_rule_does_not_allow_the_arn_of_another() -> None:
    other = ARN.replace("resize", "billing")
    policy = TenancyPolicy((TenancyRule(("a",), (ARN,), (ROLE,)), TenancyRule(("a",), (other,))))

    assert policy.refusal("a", ARN, ROLE) == ""
    assert policy.refusal("a", other) == ""
    assert policy.refusal("a", other, ROLE) == (
        f"no single rule of the tenancy policy for namespace a allows spec.activityArn '{other}' and spec.aws.roleArn "
        f"'{ROLE}' together; use what one rule allows or ask the administrator"
    )


def test_refusal_names_the_field_of_the_arn() -> None:
    refused = TenancyPolicy((TenancyRule(("a",), ("other",)),)).refusal(
        "a", ARN, arn_field="source.stepFunctions.activityArn"
    )

    assert refused.startswith(f"spec.source.stepFunctions.activityArn '{ARN}' is not allowed")


def test_policy_is_parsed_from_its_file() -> None:
    rule = {"namespaces": ["a"], "activityArns": [ARN], "roleArns": [ROLE], "endpointUrls": ["https://sfn.local"]}

    policy = parse_policy({"rules": [rule]})

    assert policy == TenancyPolicy((TenancyRule(("a",), (ARN,), (ROLE,), ("https://sfn.local",)),))


@pytest.mark.parametrize("nothing", [None, {}, {"rules": []}])
def test_empty_policy_is_the_default(nothing: object) -> None:
    assert parse_policy(nothing) == TenancyPolicy()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"rulez": []}, "'rules'"),
        ({"rules": "all"}, "tenancy.rules: expected a list"),
        ({"rules": ["all"]}, r"tenancy.rules\[0\]: expected a mapping"),
        ({"rules": [{}]}, r"tenancy.rules\[0\].namespaces: is required"),
        ({"rules": [{"namespaces": ["a"], "arns": []}]}, r"tenancy.rules\[0\].arns: no such field"),
        ({"rules": [{"namespaces": "a"}]}, "expected a list of strings, got 'a'"),
        ({"rules": [{"namespaces": ["a"], "roleArns": [7]}]}, "roleArns: expected a list of strings"),
    ],
)
def test_error_of_an_invalid_policy_names_field_and_fix(raw: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(raw)


@pytest.mark.parametrize(
    ("glob", "url", "allowed"),
    [
        ("https://*.example.com", "https://states.example.com", True),
        ("https://*.example.com", "https://evil.test/.example.com", False),
        ("https://*.example.com", "https://evil.test?.example.com", False),
        ("https://*.example.com", "https://evil.test#.example.com", False),
        ("https://*.example.com", "https://evil.test\\.example.com", False),
        ("https://states.example.com*", "https://states.example.com/path", True),
        ("https://states.example.com/*", "https://states.example.com/path", True),
        ("https://states.example.com/*", "https://states.example.com.evil.test/path", False),
        ("http://*", "http://anywhere:8080/path", True),
        ("*", "http://anywhere:8080/path", True),
        ("*.example.com*", "https://states.example.com", True),
    ],
)
def test_glob_of_a_host_does_not_match_the_path_of_another_host(glob: str, url: str, allowed: bool) -> None:
    policy = parse_policy({"rules": [{"namespaces": ["*"], "endpointUrls": [glob]}]})

    assert (policy.refusal("ns", "arn", endpoint_url=url) == "") is allowed
