"""The environment variables that describe the source to a worker. A URL with a password comes from its Secret."""

from collections.abc import Mapping
from typing import Any

from activity_operator.api.model import ApiModel
from activity_operator.api.sources import (
    RedisSourceSpec,
    SecretKeyRef,
    SwfSourceSpec,
    TaskbrokerSourceSpec,
    TaskStoreSourceSpec,
)
from activity_operator.api.spec import PoolSpec
from activity_worker.contract import Env

Variable = dict[str, Any]


def source_environment(spec: PoolSpec) -> list[Variable]:
    """Return the source's environment variables for the worker container."""
    if spec.swf is not None:
        return _swf(spec, spec.swf)
    if spec.redis is not None:
        return _redis(spec.redis)
    if spec.task_store is not None:
        return _task_store(spec.task_store)
    if spec.taskbroker is not None:
        return _taskbroker(spec.taskbroker)
    return _given({Env.ACTIVITY_ARN: spec.arn, Env.REGION: spec.region, Env.ENDPOINT_URL: spec.aws.endpoint_url})


def source_parts(spec: PoolSpec) -> dict[str, Any]:
    """Return the parts of `spec.source` that belong to a pod, for the revision's hash; empty for Step Functions.

    Default values are left out, so that a new field of a later version does not change the hash. Fields that only the
    operator reads are left out, because a change to them must not replace workers.
    """
    if spec.source is None:
        return {}
    return spec.source.model_dump(exclude_defaults=True, exclude={"task_store": {"tasks"}, "swf": {"poll_at_zero"}})


def changed_fields(part: ApiModel) -> Mapping[str, Any]:
    """Return the fields of a part of the spec that differ from their defaults, with their values."""
    return part.model_dump(exclude_defaults=True)


def literal(text: str) -> str:
    """Return the value escaped for a pod spec: Kubernetes would replace `$(NAME)` by the value of that variable."""
    return text.replace("$", "$$")


def _swf(spec: PoolSpec, source: SwfSourceSpec) -> list[Variable]:
    plain = {
        Env.SWF_DOMAIN: source.domain,
        Env.SWF_TASK_LIST: source.task_list,
        Env.SWF_REGISTER: "true" if source.register_activity_types else None,
        Env.REGION: spec.region,
        Env.SWF_ENDPOINT_URL: spec.aws.endpoint_url,
    }
    return _given(plain)


def _redis(source: RedisSourceSpec) -> list[Variable]:
    url = f"redis://{source.address}" if source.address is not None else source.url_secret_ref
    plain = {
        Env.REDIS_FLOW: source.flow,
        Env.REDIS_QUEUE: source.queue,
        Env.REDIS_NEXT_QUEUE: source.next_queue or None,
        Env.REDIS_ATTRIBUTES: ",".join(source.attributes) or None,
        Env.REDIS_LOCK_SECONDS: source.lock_seconds,
        Env.REDIS_RENEW_LOCK: "true" if source.renew_lock else "false",
        Env.REDIS_CONCLUDE: source.conclude.lower(),
        # Another variable is another pod template: the worker's own default is not written.
        Env.REDIS_BLOCK_SECONDS: source.block_seconds if "block_seconds" in changed_fields(source) else None,
    }
    return [_url(Env.REDIS_URL, url), *_given(plain)]


def _task_store(source: TaskStoreSourceSpec) -> list[Variable]:
    url = source.url if source.url is not None else source.url_secret_ref
    return [_url(Env.STORE_URL, url), *_given({Env.STORE_LEASE_SECONDS: source.lease_seconds})]


def _taskbroker(source: TaskbrokerSourceSpec) -> list[Variable]:
    plain = {
        Env.TASKBROKER: ",".join(source.addresses),
        Env.TASKBROKER_APPLICATION: source.application,
        Env.TASKBROKER_NAMESPACE: source.namespace,
        Env.TASKBROKER_TLS: "true" if source.tls else "false",
    }
    secrets = {Env.TASKBROKER_SECRETS: source.signing_secret_ref, Env.TASKBROKER_CA: source.ca_secret_ref}
    return [
        *_given(plain),
        *(_from_secret(name, ref) for name, ref in secrets.items() if ref is not None),
        *(_pushed(source) if source.delivery == "Push" else ()),
    ]


def _pushed(source: TaskbrokerSourceSpec) -> list[Variable]:
    """Return what a worker needs to register with the brokers, and to take pushes."""
    address = {"name": str(Env.TASKBROKER_ADVERTISE), "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    variables = [*_given({Env.TASKBROKER_DELIVERY: "push"}), address]
    if source.push_tls_secret_name is not None:
        for env, key in ((Env.TASKBROKER_PUSH_CERTIFICATE, "tls.crt"), (Env.TASKBROKER_PUSH_KEY, "tls.key")):
            variables.append(_from_secret(env, SecretKeyRef(name=source.push_tls_secret_name, key=key)))
    return variables


def _url(name: Env, url: str | SecretKeyRef | None) -> Variable:
    if isinstance(url, SecretKeyRef):
        return _from_secret(name, url)
    return {"name": str(name), "value": literal(url or "")}


def _from_secret(name: Env, ref: SecretKeyRef) -> Variable:
    return {"name": str(name), "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}


def _given(plain: Mapping[Env, Any]) -> list[Variable]:
    return [{"name": str(name), "value": literal(str(value))} for name, value in plain.items() if value is not None]
