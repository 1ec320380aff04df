"""The administrator's tenancy policy: which namespaces may use which activities, domains, roles and endpoints.

Without a policy every namespace may name any activity ARN or domain (the operator's own AWS rights still decide), but
no role and no endpoint: with those a tenant could use the operator's credentials or its access to the network.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

#: Scheme, host and port: everything before the path, query or fragment. Some URL parsers read a backslash as a slash.
_HOST = re.compile(r"[^:/?#\\]*://[^/?#\\]*")

_FIELDS = ("namespaces", "activityArns", "roleArns", "endpointUrls", "sourceHosts", "swfDomains")


class PolicyError(ValueError):
    """The policy cannot be used; the text names the field, its value and the fix."""


@dataclass(frozen=True, slots=True)
class TenancyRule:
    """What the matching namespaces may use. All fields are globs (`*` also matches `/` and `:`); () allows none.

    The host of an endpoint's URL must match the glob's host, too: `https://*.example.com` does not allow
    `https://another.com/.example.com`.
    """

    namespaces: tuple[str, ...] = ("*",)
    activity_arns: tuple[str, ...] = ("*",)
    role_arns: tuple[str, ...] = ()
    endpoint_urls: tuple[str, ...] = ()
    source_hosts: tuple[str, ...] = ("*",)
    swf_domains: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class TenancyPolicy:
    """The rules of the policy. A pool may run if one rule for its namespace allows everything that the pool names."""

    rules: tuple[TenancyRule, ...] = (TenancyRule(),)

    def refusal(
        self,
        namespace: str,
        arn: str,
        role_arn: str = "",
        endpoint_url: str = "",
        cloudwatch_endpoint_url: str = "",
        prometheus_url: str = "",
        arn_field: str = "activityArn",
        swf_domain: str = "",
    ) -> str:
        """Return why the pool may not run, as a sentence that names the fix, or "" if it may.

        `arn_field` is the field of `spec` that holds the ARN.
        """
        rules = [rule for rule in self.rules if _matches(namespace, rule.namespaces)]
        if not rules:
            return f"the tenancy policy has no rule for namespace {namespace}; ask the administrator for one"
        endpoints = [glob for rule in rules for glob in rule.endpoint_urls]
        asked = (
            (arn_field, arn, [glob for rule in rules for glob in rule.activity_arns]),
            ("source.swf.domain", swf_domain, [glob for rule in rules for glob in rule.swf_domains]),
            ("aws.roleArn", role_arn, [glob for rule in rules for glob in rule.role_arns]),
            ("aws.endpointUrl", endpoint_url, endpoints),
            ("aws.cloudWatchEndpointUrl", cloudwatch_endpoint_url, endpoints),
            ("scaling.prometheus.serverUrl", prometheus_url, endpoints),
        )
        for field, value, globs in asked:
            allowed = _leads_to if globs is endpoints else _matches
            if value and not allowed(value, globs):
                return (
                    f"spec.{field} '{value}' is not allowed in namespace {namespace} by the tenancy policy; "
                    "use an allowed one or ask the administrator"
                )
        urls = (endpoint_url, cloudwatch_endpoint_url, prometheus_url)
        if any(_allows(rule, arn, swf_domain, role_arn, urls) for rule in rules):
            return ""
        together = " and ".join(f"spec.{field} '{value}'" for field, value, _ in asked if value)
        return (
            f"no single rule of the tenancy policy for namespace {namespace} allows {together} together; use what one "
            "rule allows or ask the administrator"
        )

    def host_refusal(self, namespace: str, hosts: Iterable[str]) -> str:
        """Return why the operator may not read a source on these hosts (HOST:PORT), or "" if it may."""
        globs = self.source_hosts(namespace)
        for host in hosts:
            if not _matches(host, globs):
                return (
                    f"the source's host '{host}' is not allowed in namespace {namespace} by the tenancy policy; use an "
                    "allowed one or ask the administrator"
                )
        return ""

    def source_hosts(self, namespace: str) -> tuple[str, ...]:
        """Return the globs of the hosts (HOST:PORT) on which the operator may read sources of the namespace."""
        globs = (glob for rule in self.rules if _matches(namespace, rule.namespaces) for glob in rule.source_hosts)
        return tuple(dict.fromkeys(globs))


def named_host_refusal(host: str, globs: Sequence[str]) -> str:
    """Return why the operator must not connect to a host (HOST:PORT) that a source's server named, or "" if it may.

    `globs` are `TenancyPolicy.source_hosts`.
    """
    if _matches(host, globs):
        return ""
    return (
        f"the tenancy policy's sourceHosts do not allow '{host}' in the pool's namespace; let the servers name allowed "
        "hosts or ask the administrator"
    )


def _allows(rule: TenancyRule, arn: str, swf_domain: str, role_arn: str, endpoint_urls: Sequence[str]) -> bool:
    asked = ((arn, rule.activity_arns), (swf_domain, rule.swf_domains), (role_arn, rule.role_arns))
    return all(not value or _matches(value, globs) for value, globs in asked) and all(
        not url or _leads_to(url, rule.endpoint_urls) for url in endpoint_urls
    )


def _matches(value: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(value, glob) for glob in globs)


def _leads_to(url: str, globs: Sequence[str]) -> bool:
    """Whether a glob matches the whole URL, and the glob's host matches the URL's: `*` must not reach into the path."""
    return any(fnmatchcase(url, glob) and fnmatchcase(_host(url), _host(glob)) for glob in globs)


def _host(url: str) -> str:
    """Return scheme, host and port of a URL or of a glob for URLs; the whole text if it has no scheme."""
    found = _HOST.match(url)
    return url if found is None else found.group()


def parse_policy(raw: Any) -> TenancyPolicy:
    """Return the policy in `raw`, a mapping with a list `rules`; None or no rules: the default.

    Raises PolicyError.
    """
    if raw is None:
        return TenancyPolicy()
    if not isinstance(raw, Mapping) or set(raw) - {"rules"}:
        raise PolicyError("tenancy: expected a mapping with the one field 'rules'")
    rules = raw.get("rules") or ()
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise PolicyError(f"tenancy.rules: expected a list, got {type(rules).__name__}")
    if not rules:
        return TenancyPolicy()
    return TenancyPolicy(tuple(_rule(rule, f"tenancy.rules[{index}]") for index, rule in enumerate(rules)))


def _rule(raw: Any, where: str) -> TenancyRule:
    if not isinstance(raw, Mapping):
        raise PolicyError(f"{where}: expected a mapping, got {type(raw).__name__}")
    if unknown := sorted(set(map(str, raw)) - set(_FIELDS)):
        raise PolicyError(f"{where}.{unknown[0]}: no such field; use {', '.join(_FIELDS)}")
    if not raw.get("namespaces"):
        raise PolicyError(f"{where}.namespaces: is required; name namespaces or globs, ['*'] for all")
    return TenancyRule(
        namespaces=_globs(raw, "namespaces", where, ()),
        activity_arns=_globs(raw, "activityArns", where, ("*",)),
        role_arns=_globs(raw, "roleArns", where, ()),
        endpoint_urls=_globs(raw, "endpointUrls", where, ()),
        source_hosts=_globs(raw, "sourceHosts", where, ("*",)),
        swf_domains=_globs(raw, "swfDomains", where, ("*",)),
    )


def _globs(raw: Mapping[str, Any], field: str, where: str, default: tuple[str, ...]) -> tuple[str, ...]:
    found = raw.get(field, default)
    if isinstance(found, str) or not isinstance(found, Sequence) or not all(isinstance(item, str) for item in found):
        raise PolicyError(f"{where}.{field}: expected a list of strings, got {found!r}")
    return tuple(found)
