"""Pools that once broke a promise, or nearly did, each with the outcome that is now required.

`field`: refused at admission, and the answer names this field. `reason` and `words`: accepted, and the condition has
them. Neither: the pool gets its Deployment.
"""

from dataclasses import dataclass
from typing import Any

from tests.hostile.users.pools import ARN, IMAGE


@dataclass(frozen=True)
class Finding:
    """One pool."""

    name: str
    spec: Any
    field: str = ""
    reason: str = ""
    words: str = ""


def activity(**changes: Any) -> dict[str, Any]:
    """Return an honest spec with these changes."""
    return {"activityArn": ARN + "found", "handlerImage": IMAGE, "maxWorkers": 2, **changes}


def redis(**changes: Any) -> dict[str, Any]:
    """Return an honest pool of a queue with these changes of its source."""
    source = {"address": "127.0.0.1:1", "flow": "f", "queue": "q", **changes}
    return {"source": {"redis": source}, "handlerImage": IMAGE, "maxWorkers": 2}


def pod(**fields: Any) -> dict[str, Any]:
    """Return a pool with these fields of its pod spec and minWorkers 1."""
    return activity(podTemplate={"spec": fields}, minWorkers=1)


def worker(**fields: Any) -> dict[str, Any]:
    """Return a pool with these fields of its worker container."""
    return pod(containers=[{"name": "worker", **fields}])


def context(**fields: Any) -> dict[str, Any]:
    """Return a pool with this security context of its worker."""
    return worker(securityContext=fields)


def nested(levels: int) -> Any:
    """Return `levels` nested objects."""
    found: Any = 1
    for _ in range(levels):
        found = {"a": found}
    return found


def token(audience: str) -> dict[str, Any]:
    """Return a pool whose pods mount a token for this audience."""
    sources = [{"serviceAccountToken": {"audience": audience, "path": "t"}}]
    return pod(volumes=[{"name": "t", "projected": {"sources": sources}}])


REJECTED = "PodTemplateRejected"
RESTRICTED = "is not allowed in a restricted pod; remove it"
OWN = "is the operator's"

#: These made the operator raise an exception again and again, without a condition.
RAISED = (
    Finding("capabilities-text", context(capabilities="x"), "", REJECTED, "capabilities 'x' must be an object"),
    Finding("capability-number", context(capabilities={"add": 5}), "", REJECTED, f"add '5' {RESTRICTED}"),
    Finding("capability-object", context(capabilities={"add": [{}]}), "", REJECTED, RESTRICTED),
    Finding("seccomp-text", context(seccompProfile="x"), "", REJECTED, "seccompProfile 'x' must be an object"),
    Finding("name-object", pod(containers=[{"name": {"a": 1}}]), "", REJECTED, "containers[0].name: is required"),
    Finding("volume-list", pod(volumes=[{"name": [1]}]), "", REJECTED, "volumes[0].name: is required"),
    Finding("variable-object", worker(env=[{"name": {"a": 1}}]), "", REJECTED, "env[0].name: is required"),
    Finding("port-object", worker(ports=[{"name": {}}]), "", REJECTED, "ports"),
    Finding("deep", pod(affinity=nested(800)), "", REJECTED, "is nested more than 40 levels deep"),
)
#: These were silently lost or overruled.
LOST = (
    Finding("containers-text", pod(containers="worker"), "", REJECTED, "containers 'worker' must be a list"),
    Finding("containers-object", pod(containers={}), "", REJECTED, "containers: must be a list"),
    Finding("worker-twice", pod(containers=[{"name": "worker"}] * 2), "", REJECTED, "name 'worker' is there twice"),
    Finding("variable-ours", worker(env=[{"name": "ACTIVITY_ARN", "value": "x"}]), "", REJECTED, OWN),
    Finding("pull-policy", worker(imagePullPolicy="Always"), "", REJECTED, OWN),
    Finding("tmp", worker(volumeMounts=[{"name": "a", "mountPath": "/tmp/"}]), "", REJECTED, OWN),
    Finding("report-volume", pod(volumes=[{"name": "activitypool-report", "secret": {}}]), "", REJECTED, OWN),
    Finding("long-key", pod(**{"x" * 1100: 1}), "", REJECTED, "of 1100 characters; remove it"),
)
#: These made pods that a restricted namespace refuses and any other namespace runs.
ESCALATED = (
    Finding("sysctl", pod(securityContext={"sysctls": [{"name": "kernel.msgmax"}]}), "", REJECTED, RESTRICTED),
    Finding("selinux", pod(securityContext={"seLinuxOptions": {"user": "root"}}), "", REJECTED, RESTRICTED),
    Finding("windows", pod(securityContext={"windowsOptions": {"hostProcess": True}}), "", REJECTED, RESTRICTED),
    Finding("proc", context(procMount="Unmasked"), "", REJECTED, RESTRICTED),
    Finding("probe", worker(startupProbe={"tcpSocket": {"host": "10.0.0.1", "port": 1}}), "", REJECTED, RESTRICTED),
    Finding(
        "apparmor",
        activity(
            podTemplate={
                "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}}
            }
        ),
        "",
        REJECTED,
        RESTRICTED,
    ),
    Finding("node", pod(nodeName="control-plane"), "", REJECTED, "use nodeSelector or affinity instead"),
    Finding("node-escape", pod(nodeName="a\n\x1b[31m\u202e"), "", REJECTED, r"'a\n\x1b[31m\u202e' would pass by"),
    Finding("priority", pod(priorityClassName="system-node-critical"), "", REJECTED, "for the cluster's own parts"),
    Finding("api-token", token("https://kubernetes.default.svc.cluster.local"), "", REJECTED, "must be one of"),
    Finding("report-token", token("activitypools.dev/operator"), "", REJECTED, "must be one of"),
    Finding("automount", pod(automountServiceAccountToken=True), "", REJECTED, "must be false"),
    Finding(
        "deletion-cost",
        activity(
            podTemplate={"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}}}
        ),
        "",
        REJECTED,
        OWN,
    ),
)
#: These are honest, and were once refused or changed.
HONEST = (
    Finding("sidecar", pod(containers=[{"name": "side", "image": IMAGE}])),
    Finding("init", pod(initContainers=[{"name": "first", "image": IMAGE}])),
    Finding("emoji", worker(env=[{"name": "A", "value": "\U0001f600\x7f\u2028\ufeff\x85\x00"}])),
    Finding("two-protocols", worker(ports=[{"containerPort": 53, "protocol": one} for one in ("TCP", "UDP")])),
    Finding("quantities", worker(resources={"limits": {"cpu": "1.0", "memory": "1e3"}, "requests": {"cpu": "0.5"}})),
    Finding("aws-token", token("sts.amazonaws.com")),
    Finding("dollar", redis(queue="$(POD_NAME)$$x")),
    Finding("emoji-queue", redis(queue="\U0001f600")),
    Finding("nulls", pod(containers=None, volumes=None, securityContext=None, nodeSelector=None)),
)
#: These once passed admission, and the operator or a pod could not use them; or they inject code by a name.
ADMISSION = (
    Finding("arn-space", activity(activityArn=ARN + "a\u00a0b"), "spec.activityArn"),
    Finding("arn-tab", activity(activityArn=ARN + "a\x0bb"), "spec.activityArn"),
    Finding("arn-escape", activity(activityArn=ARN + "\x1b[31m"), "spec.activityArn"),
    Finding("image-space", activity(handlerImage="a\u00a0b"), "spec.handlerImage"),
    Finding("image-escape", activity(handlerImage="a\x1b[31m"), "spec.handlerImage"),
    Finding("account-dots", activity(serviceAccountName="a..b"), "spec.serviceAccountName"),
    Finding("role-escape", activity(aws={"roleArn": "arn:aws:iam::123456789012:role/a\x1b"}), "spec.aws.roleArn"),
    Finding("flow-zero", redis(flow="f\x00"), "spec.source.redis.flow"),
    Finding("queue-c1", redis(queue="q\x9b"), "spec.source.redis.queue"),
    Finding(
        "secret-path",
        redis(address=None, urlSecretRef={"name": "../../system-users/secrets/a", "key": "k"}),
        "spec.source.redis.urlSecretRef.name",
    ),
    Finding("secret-up", redis(address=None, urlSecretRef={"name": "..", "key": "k"}), "urlSecretRef.name"),
    Finding("secret-key", redis(address=None, urlSecretRef={"name": "a", "key": "x\ny"}), "urlSecretRef.key"),
    Finding(
        "task-zero",
        {
            "source": {"taskStore": {"url": "postgresql://u@127.0.0.1:1/d", "tasks": ["a\x00"]}},
            "handlerImage": IMAGE,
            "maxWorkers": 1,
        },
        "spec.source.taskStore.tasks",
    ),
    Finding("replicas", activity(replicas=2**31), "spec.replicas"),
)
FINDINGS = (*RAISED, *LOST, *ESCALATED, *HONEST, *ADMISSION)
