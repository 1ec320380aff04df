"""How messages name a counted source and the field of the spec that holds its URL."""

from activity_operator.api.spec import PoolSpec


def source_name(spec: PoolSpec) -> str:
    """Return the source's name: a task list, a Redis queue and its server, a taskbroker, or the task store."""
    if spec.swf is not None:
        return f"the task list {spec.swf.task_list} of domain {spec.swf.domain}"
    if spec.redis is not None:
        server = f" at {spec.redis.address}" if spec.redis.address is not None else ""
        return f"the queue {spec.redis.queue} on the Redis server{server}"
    if spec.taskbroker is not None:
        return f"the taskbroker at {', '.join(spec.taskbroker.addresses)}"
    return "the task store"


def url_location(spec: PoolSpec) -> str:
    """Return where the source's URL is set: a Secret's key or a field of the spec."""
    if (secret := spec.url_secret_ref) is not None:
        return f"in Secret {secret.name}, key {secret.key}"
    if spec.taskbroker is not None:
        return "in spec.source.taskbroker.addresses"
    return "in spec.source.redis.address" if spec.redis is not None else "in spec.source.taskStore.url"
