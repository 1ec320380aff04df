"""How conditions name a source that is counted, and the place in the spec that says where it is."""

from activity_operator.api.spec import PoolSpec


def source_name(spec: PoolSpec) -> str:
    """Return the source's name: a queue and its server, or a task store."""
    if spec.redis is not None:
        server = f" at {spec.redis.address}" if spec.redis.address is not None else ""
        return f"the queue {spec.redis.queue} on the Redis server{server}"
    return "the task store"


def url_location(spec: PoolSpec) -> str:
    """Return what a person looks at to correct the way to it."""
    if (secret := spec.url_secret_ref) is not None:
        return f"in Secret {secret.name}, key {secret.key}"
    return "in spec.source.redis.address" if spec.redis is not None else "in spec.source.taskStore.url"
