"""PURE: what must be true of an accepted pool, of its Deployment, of the log and of the metrics.

Written from the promises in SECURITY.md, not from the operator's code, so that the tests compare the two.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Raw = Mapping[str, Any]

#: Reasons with which a pool may have no Deployment of its generation.
REFUSED = {"InvalidSpec", "PodTemplateRejected", "QuotaExceeded"}
AUDIENCES = {"activitypools.dev/operator", "sts.amazonaws.com", "pods.eks.amazonaws.com"}
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "name", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
#: Variables that tell a worker its pool and where it reports.
OURS = {"ACTIVITY_POOL", "ACTIVITY_REPORT_URL", "ACTIVITY_REPORT_TOKEN_FILE", "ACTIVITY_REPORT_CA_FILE", "POD_UID"}


def of_pool(pool: Raw, deployments: Sequence[Raw]) -> Iterator[str]:
    """Yield what is wrong with an accepted pool's status and Deployments."""
    name, generation = pool["metadata"]["name"], pool["metadata"]["generation"]
    for condition in pool["status"]["conditions"]:
        if not condition["message"].isprintable():
            yield f"{name}: condition {condition['type']} has unprintable words: {condition['message']!r}"
    ready = next(condition for condition in pool["status"]["conditions"] if condition["type"] == "Ready")
    reason = ready["reason"]
    current = [raw for raw in deployments if _annotation(raw, "generation") == str(generation)]
    if reason == "ReconcileFailed":
        yield f"{name}: the operator failed: {ready['message']}"
    if ready["status"] == "False" and not ready["message"]:
        yield f"{name}: not ready, without a reason ({reason})"
    if reason in REFUSED and reason != "QuotaExceeded" and "spec." not in ready["message"]:
        yield f"{name}: refused without the name of a field: {ready['message']!r}"
    if not current and reason not in REFUSED:
        yield f"{name}: no Deployment of generation {generation}, and the condition says {reason}: {ready['message']!r}"
    for raw in current:
        desired = pool["status"].get("desiredReplicas", 0)
        if reason not in REFUSED and raw["spec"]["replicas"] != desired:
            yield f"{name}: {raw['spec']['replicas']} replicas, and the status says {desired}"
        if reason == "TenancyDenied" and raw["spec"]["replicas"]:
            yield f"{name}: replicas although the policy refuses the pool"


def of_deployment(raw: Raw, pool: Raw) -> Iterator[str]:
    """Yield the forbidden privileges of a Deployment's pods, and the operator's fields that were overruled."""
    name = raw["metadata"]["name"]
    owners = raw["metadata"].get("ownerReferences") or ()
    if [owner["uid"] for owner in owners] != [pool["metadata"]["uid"]]:
        yield f"{name}: owned by {owners}"
    template = raw["spec"]["template"]
    labels = template["metadata"]["labels"]
    if labels.get("activitypools.dev/pool") != pool["metadata"]["name"] or "activitypools.dev/leader" in labels:
        yield f"{name}: labelled {labels}"
    if raw["spec"]["selector"]["matchLabels"] != {
        key: labels[key] for key in ("activitypools.dev/pool", "activitypools.dev/revision")
    }:
        yield f"{name}: selects {raw['spec']['selector']}"
    if "controller.kubernetes.io/pod-deletion-cost" in (template["metadata"].get("annotations") or {}):
        yield f"{name}: says itself who leaves first"
    for words in (*_of_pod(template["spec"], pool), *_of_volumes(template["spec"])):
        yield f"{name}: {words}"
    for kind in ("initContainers", "containers"):
        for container in template["spec"].get(kind) or ():
            for words in _of_container(container):
                yield f"{name}: {kind} {container['name']} {words}"


def _of_pod(spec: Raw, pool: Raw) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC", "nodeName", "activeDeadlineSeconds", "ephemeralContainers"):
        if spec.get(field):
            yield f"has {field} {spec[field]!r}"
    if spec.get("automountServiceAccountToken") is not False:
        yield "gets a token for the API server"
    wanted = pool["spec"].get("serviceAccountName")
    if spec.get("serviceAccountName") != wanted:
        yield f"runs as {spec.get('serviceAccountName')}, not as {wanted}"
    context = spec.get("securityContext") or {}
    if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
        yield f"may run as root: {context}"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield f"has the seccomp profile {context.get('seccompProfile')}"
    if str(spec.get("priorityClassName", "")).startswith("system-"):
        yield "claims a priority of the cluster's own"
    if [one["name"] for one in spec["containers"]].count("worker") != 1:
        yield "has not exactly one worker"
    drain = pool["spec"]["drain"]["timeoutSeconds"]
    if spec["terminationGracePeriodSeconds"] <= drain:
        yield f"is killed after {spec['terminationGracePeriodSeconds']} s, and may drain for {drain} s"


def _of_volumes(spec: Raw) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        if set(volume) - VOLUMES:
            yield f"mounts {volume}"
        for source in (volume.get("projected") or {}).get("sources") or ():
            token = source.get("serviceAccountToken")
            if token is not None and token.get("audience") not in AUDIENCES:
                yield f"gets a token for {token.get('audience')!r}"
            if token is not None and token["audience"].startswith("activity") and not _is_ours(volume):
                yield "gets a second token for the operator"


def _is_ours(volume: Raw) -> bool:
    return str(volume["name"]) == "activitypool-report"


def _of_container(container: Raw) -> Iterator[str]:
    context = container.get("securityContext") or {}
    if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
        yield f"may escalate: {context}"
    if context.get("runAsUser") == 0 or context.get("runAsNonRoot") is False:
        yield f"may run as root: {context}"
    capabilities = context.get("capabilities") or {}
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"has capabilities: {capabilities}"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield "takes a port of its node"
    if container["name"] != "worker":
        return
    variables = [one["name"] for one in container["env"]]
    if len(set(variables)) != len(variables) or not set(variables) >= OURS:
        yield f"has the variables {variables}"
    values = {one["name"]: one.get("value", "") for one in container["env"]}
    if not values["ACTIVITY_REPORT_URL"].startswith("https://activity-operator-reports.system-"):
        yield f"reports to {values['ACTIVITY_REPORT_URL']}"
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    if (mounts.get("/var/run/activitypool"), mounts.get("/tmp")) != ("activitypool-report", "activitypool-tmp"):
        yield f"mounts {mounts}"


def of_log(text: str) -> Iterator[str]:
    """Yield lines of a JSON log that are no JSON, contain an invisible character, or show a bug."""
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            yield f"no record: {line[:300]!r}"
            continue
        if not record["message"].isprintable() or not line.isprintable():
            yield f"unprintable: {line[:300]!r}"
        if record["logger"].startswith("botocore"):
            continue  # botocore logs each role that cannot be assumed with its own traceback
        if "error" in record or record["level"] == "error":
            yield f"an error: {line[:300]} … {line[-1200:]}"
        if "forged" in (record.get("level"), record["message"]):
            yield f"a forged record: {line[:300]!r}"


def of_metrics(text: str, namespaces: set[str], namespace: str, pools: Collection[str]) -> Iterator[str]:
    """Yield samples of a metrics page whose labels name unknown objects; `pools` are those of one namespace."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "namespace" in sample.labels and sample.labels["namespace"] not in namespaces:
                yield f"a namespace that is none: {sample}"
            if sample.labels.get("namespace") == namespace and sample.labels["activitypool"] not in pools:
                yield f"a pool that is none: {sample}"


def _annotation(raw: Raw, name: str) -> str:
    return str((raw["metadata"].get("annotations") or {}).get(f"activitypools.dev/{name}", ""))
