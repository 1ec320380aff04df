"""What has to happen at once on the server, because a look and a change in two calls would race a worker.

The server undoes nothing when a command of a script fails, so a job enters its next list before it leaves its last one.
"""

from collections.abc import Sequence
from typing import Final

from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import Arg, RedisClient

#: Fails a job under way that has no lock. A worker's lock that came first wins, and so does a monitor that put the job
#: back: its count must be the one that the look saw, "" for none. A hash that is no longer kept is not made again, and
#: a failure that a worker wrote before it died keeps its words.
#: KEYS: lock, processing, job. ARGV: id, the field of the count, the count that was seen, then the failure's fields and
#: values.
_FAIL: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local count = redis.pcall('HGET', KEYS[3], ARGV[2])
if (type(count) == 'string' and count or '') ~= ARGV[3] then return 0 end
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 0 then return 0 end
if redis.call('EXISTS', KEYS[3]) == 1 and redis.call('HGET', KEYS[3], 'failed') ~= 'true' then
  redis.call('HSET', KEYS[3], unpack(ARGV, 4))
end
return 1
"""
#: Lets such a job wait again, as the next one, unless it did so too often, or has failed.
#: KEYS: lock, processing, job, waiting. ARGV: id, the field of the count, the count that was seen, how often.
_REQUEUE: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if redis.call('EXISTS', KEYS[3]) == 0 or redis.call('HGET', KEYS[3], 'failed') == 'true' then return 0 end
local count = redis.call('HGET', KEYS[3], ARGV[2]) or ''
if count ~= ARGV[3] or (tonumber(count) or 0) >= tonumber(ARGV[4]) then return 0 end
redis.call('LPUSH', KEYS[4], ARGV[1])
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 0 then
  redis.call('LREM', KEYS[4], 1, ARGV[1])
  return 0
end
redis.call('HSET', KEYS[3], ARGV[2], (tonumber(count) or 0) + 1)
return 1
"""
#: Takes a failure back and lets the job wait; only the first of several that try finds one to take back.
#: KEYS: lock, processing, job, waiting. ARGV: id, the failure's fields.
_RETRY: Final = """
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 0 then return 0 end
redis.call('RPUSH', KEYS[4], ARGV[1])
redis.call('HDEL', KEYS[3], unpack(ARGV, 2))
redis.call('LREM', KEYS[2], 0, ARGV[1])
redis.call('DEL', KEYS[1])
return 1
"""


async def fail_unlocked(client: RedisClient, flow: str, queue: str, job_id: str, count: str) -> bool:
    """Fail a job that is under way without a lock; tells whether it was so.

    `count` is how often it was put back when it was seen, "" for never.
    """
    touched = [keys.lock(queue, job_id), keys.processing(queue), keys.job(flow, job_id)]
    failure = keys.pairs(keys.lock_exceeded(queue))
    return bool(await _run(client, _FAIL, touched, job_id, keys.retries(queue), count, *failure))


async def requeue_unlocked(client: RedisClient, flow: str, queue: str, job_id: str, count: str, most: int) -> bool:
    """Let a job wait again that is under way without a lock, `most` times; tells whether it does.

    `count` is how often it was put back when it was seen, "" for never.
    """
    return bool(await _run(client, _REQUEUE, _touched(flow, queue, job_id), job_id, keys.retries(queue), count, most))


async def retry(client: RedisClient, flow: str, queue: str, job_id: str) -> bool:
    """Let a failed job wait again; tells whether it was failed."""
    fields = [keys.FAILED, keys.DONE, keys.FAILED_QUEUE, keys.FAILED_ERROR]
    return bool(await _run(client, _RETRY, _touched(flow, queue, job_id), job_id, *fields))


def _touched(flow: str, queue: str, job_id: str) -> list[str]:
    return [keys.lock(queue, job_id), keys.processing(queue), keys.job(flow, job_id), keys.waiting(queue)]


async def _run(client: RedisClient, script: str, touched: Sequence[str], *arguments: Arg) -> int:
    answer: int = await client.call("EVAL", script, len(touched), *touched, *arguments)
    return answer
