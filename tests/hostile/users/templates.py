"""PURE: a generator of pod templates: valid ones, ones that escalate, odd ones, and values that are no pod spec."""

from typing import Any

from hypothesis import strategies as st

from tests.hostile.users.texts import HOSTILE

#: Any JSON, of any shape.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | HOSTILE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(HOSTILE, inner, max_size=2),
    max_leaves=4,
)

NAMES = st.sampled_from(("a", "b", "worker", "activitypool-report", "activitypool-tmp", "health")) | HOSTILE


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def often(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return mostly values of `good`, and sometimes any JSON."""
    return st.integers(0, 9).flatmap(lambda die: JSON if die == 0 else good)


PROFILE = objects(type=st.sampled_from(("RuntimeDefault", "Unconfined", "Localhost", "", 5)), localhostProfile=HOSTILE)
CONTEXT: dict[str, st.SearchStrategy[Any]] = {
    "runAsUser": st.sampled_from((0, 1, 1000, -1, "0", 0.0, False)),
    "runAsGroup": st.sampled_from((0, 1000)),
    "runAsNonRoot": st.sampled_from((True, False, None, "false")),
    "seccompProfile": often(PROFILE),
    "appArmorProfile": often(PROFILE),
    "seLinuxOptions": often(objects(user=HOSTILE, role=HOSTILE, type=st.sampled_from(("", "spc_t", "container_t")))),
    "windowsOptions": often(objects(hostProcess=st.booleans(), runAsUserName=HOSTILE)),
}
CAPABILITY = st.sampled_from(("ALL", "SYS_ADMIN", "NET_BIND_SERVICE", "NET_RAW", 5, {}))
CONTAINER_CONTEXT = objects(
    **CONTEXT,
    privileged=st.sampled_from((True, False, "true", 1)),
    allowPrivilegeEscalation=st.sampled_from((True, False, None)),
    readOnlyRootFilesystem=st.booleans(),
    procMount=st.sampled_from(("Default", "Unmasked")),
    capabilities=often(objects(add=often(st.lists(CAPABILITY, max_size=2)), drop=st.lists(CAPABILITY, max_size=2))),
)
POD_CONTEXT = objects(
    **CONTEXT,
    fsGroup=st.sampled_from((0, 1000, -1)),
    supplementalGroups=st.just([0]),
    sysctls=often(
        st.lists(
            objects(name=st.sampled_from(("kernel.msgmax", "net.ipv4.tcp_syncookies")), value=st.just("1")), max_size=1
        )
    ),
)
HANDLER = objects(
    httpGet=objects(host=st.sampled_from(("169.254.169.254", "")), path=HOSTILE, port=st.sampled_from((80, "http", 0))),
    tcpSocket=objects(host=st.just("10.0.0.1"), port=st.just(1)),
    exec=objects(command=st.lists(HOSTILE, max_size=2)),
)
VARIABLE = objects(
    name=st.sampled_from(("ACTIVITY_ARN", "ACTIVITY_REPORT_URL", "AWS_REGION", "LD_PRELOAD", "A", "B")) | HOSTILE,
    value=HOSTILE,
    valueFrom=objects(
        secretKeyRef=objects(name=st.sampled_from(("server", "system-users/a")), key=st.just("k")),
        fieldRef=objects(fieldPath=st.sampled_from(("metadata.name", "spec.nodeName", "x"))),
    ),
)
QUANTITY = st.sampled_from(("1.0", "0.5", "1e3", "1000m", "1Gi", "-1", "", "x", 1, 1.5, "0"))
RESOURCES = objects(
    limits=objects(cpu=QUANTITY, memory=QUANTITY), requests=objects(cpu=QUANTITY, memory=QUANTITY), claims=JSON
)
PORT = objects(
    name=NAMES,
    containerPort=st.sampled_from((53, 8081, 0, 70000)),
    protocol=st.sampled_from(("TCP", "UDP")),
    hostPort=st.sampled_from((0, 80)),
)
MOUNT = objects(
    name=NAMES,
    mountPath=st.sampled_from(("/tmp", "/tmp/", "/var/run/activitypool", "/var/run/activitypool/token", "/", "/data"))
    | HOSTILE,
    subPath=HOSTILE,
    readOnly=st.booleans(),
    mountPropagation=st.sampled_from(("Bidirectional", "None")),
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(("worker", "worker", "side")) | NAMES},
    optional={
        "image": st.sampled_from(("registry.invalid/other:1",)) | HOSTILE,
        "imagePullPolicy": st.sampled_from(("Always", "Whenever")),
        "command": often(st.lists(HOSTILE, max_size=3)),
        "args": often(st.lists(HOSTILE, max_size=3)),
        "workingDir": HOSTILE,
        "env": often(st.lists(VARIABLE, max_size=3)),
        "envFrom": often(st.lists(objects(secretRef=objects(name=HOSTILE), prefix=HOSTILE), max_size=1)),
        "resources": often(RESOURCES),
        "ports": often(st.lists(PORT, max_size=3)),
        "volumeMounts": often(st.lists(MOUNT, max_size=2)),
        "volumeDevices": JSON,
        "securityContext": often(CONTAINER_CONTEXT),
        "livenessProbe": HANDLER,
        "startupProbe": HANDLER,
        "lifecycle": often(objects(preStop=HANDLER, postStart=HANDLER)),
        "restartPolicy": st.sampled_from(("Always", "Never")),
        "terminationMessagePath": HOSTILE,
        "tty": st.booleans(),
    },
)
PROJECTED = objects(
    sources=often(
        st.lists(
            objects(
                serviceAccountToken=objects(
                    path=st.just("t"),
                    audience=st.sampled_from(("", "sts.amazonaws.com", "https://kubernetes.default.svc", "vault")),
                ),
                secret=objects(name=st.just("server")),
                downwardAPI=JSON,
            ),
            max_size=2,
        )
    )
)
VOLUME = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "hostPath": objects(path=st.sampled_from(("/", "/var/run/docker.sock"))),
        "secret": objects(secretName=st.sampled_from(("server", "../a"))),
        "emptyDir": objects(medium=st.sampled_from(("", "Memory")), sizeLimit=QUANTITY),
        "projected": often(PROJECTED),
        "nfs": objects(server=HOSTILE, path=st.just("/")),
        "csi": objects(driver=st.just("secrets-store.csi.k8s.io")),
        "ephemeral": often(objects(volumeClaimTemplate=JSON)),
    },
)
TOLERATION = objects(operator=st.sampled_from(("Exists", "Equal")), key=HOSTILE, effect=st.just("NoExecute"))
POD: dict[str, st.SearchStrategy[Any]] = {
    "containers": often(st.lists(CONTAINER, max_size=3)),
    "initContainers": often(st.lists(CONTAINER, max_size=2)),
    "ephemeralContainers": often(st.lists(CONTAINER, max_size=1)),
    "volumes": often(st.lists(VOLUME, max_size=3)),
    "securityContext": often(POD_CONTEXT),
    "hostNetwork": st.sampled_from((True, False, None, "true")),
    "hostPID": st.sampled_from((True, False)),
    "hostIPC": st.sampled_from((True, False)),
    "hostUsers": st.booleans(),
    "hostAliases": often(
        st.lists(objects(ip=st.just("10.0.0.1"), hostnames=st.lists(HOSTILE, max_size=1)), max_size=1)
    ),
    "shareProcessNamespace": st.booleans(),
    "automountServiceAccountToken": st.booleans(),
    "enableServiceLinks": st.booleans(),
    "serviceAccountName": HOSTILE,
    "serviceAccount": st.just("activity-operator"),
    "nodeName": st.just("control-plane"),
    "nodeSelector": often(st.dictionaries(HOSTILE, HOSTILE, max_size=1)),
    "affinity": JSON,
    "tolerations": often(st.lists(TOLERATION, max_size=1)),
    "topologySpreadConstraints": JSON,
    "priorityClassName": st.sampled_from(("system-node-critical", "high", "")),
    "priority": st.sampled_from((2000000000, 0)),
    "preemptionPolicy": st.just("Never"),
    "runtimeClassName": HOSTILE,
    "schedulerName": HOSTILE,
    "schedulingGates": often(st.just([{"name": "example.com/gate"}])),
    "restartPolicy": st.sampled_from(("Always", "Never")),
    "terminationGracePeriodSeconds": st.sampled_from((0, -1, 5)),
    "activeDeadlineSeconds": st.just(1),
    "imagePullSecrets": often(st.lists(objects(name=HOSTILE), max_size=1)),
    "dnsPolicy": st.sampled_from(("Default", "ClusterFirst", "x")),
    "dnsConfig": JSON,
    "hostname": HOSTILE,
    "subdomain": HOSTILE,
    "os": objects(name=st.sampled_from(("linux", "windows"))),
    "overhead": JSON,
    "readinessGates": JSON,
    "resourceClaims": JSON,
}
KEYS = (
    st.sampled_from(
        (
            "team",
            "activitypools.dev/pool",
            "activitypools.dev/leader",
            "pod-template-hash",
            "controller.kubernetes.io/pod-deletion-cost",
            "container.apparmor.security.beta.kubernetes.io/worker",
            "iam.amazonaws.com/role",
        )
    )
    | HOSTILE
)
METADATA = objects(
    labels=st.dictionaries(KEYS, st.sampled_from(("a", "1")) | HOSTILE, max_size=2),
    annotations=st.dictionaries(KEYS, st.sampled_from(("unconfined", "-2147483648")) | HOSTILE, max_size=2),
    ownerReferences=JSON,
    finalizers=JSON,
    namespace=st.just("kube-system"),
)


@st.composite
def pod_specs(draw: st.DrawFn) -> Any:
    """Return a pod spec of a few fields: with many, the first refused field would hide all others."""
    chosen = draw(st.lists(st.sampled_from(sorted(POD)), min_size=1, max_size=3, unique=True))
    spec = {name: draw(POD[name]) for name in chosen}
    if draw(st.integers(0, 19)) == 0:
        spec[draw(HOSTILE)] = draw(JSON)
    return spec


TEMPLATES = st.one_of(
    st.fixed_dictionaries({"spec": pod_specs()}),
    st.fixed_dictionaries({"spec": pod_specs()}),
    st.fixed_dictionaries({"metadata": METADATA}),
    st.fixed_dictionaries({"metadata": METADATA, "spec": pod_specs()}),
    objects(metadata=JSON, spec=JSON, kind=JSON),
)
