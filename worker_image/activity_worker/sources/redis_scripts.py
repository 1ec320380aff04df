"""Steps on a queue that the server makes as one: scripts in Lua, during which it runs no other command.

The server undoes nothing when a command of a script fails: a missing right, or a key of another type. So a script puts
a job into its next list before it takes the job out of its last one.
"""

import hashlib
from typing import Any, Final

from activity_worker.wire.redis_connection import Arg, RedisClient
from activity_worker.wire.redis_errors import RedisError


class Script:
    """A script, sent once to each server and named by its hash from then on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, client: RedisClient, keys: list[str], *arguments: Arg) -> Any:
        """Run it; raises `RedisError`. The first key decides where in a cluster."""
        try:
            return await client.call("EVALSHA", self._sha, len(keys), *keys, *arguments)
        except RedisError as error:
            if error.code != "NOSCRIPT":
                raise
        # Not run for not being known there: saying it in full is no second time.
        return await client.call("EVAL", self.text, len(keys), *keys, *arguments)


#: lock | owner, seconds -> whether the lock is the owner's, and prolonged.
RENEW: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
""")

#: waiting, processing | owner, seconds, lock prefix, job prefix, whether an answer was lost, attributes...
#: -> the job's id and its attributes, or nil. With an answer lost, what it leased comes again.
LEASE: Final = Script("""
local id = false
if ARGV[5] == '1' then
  for _, one in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if redis.call('GET', ARGV[3] .. one) == ARGV[1] then id = one break end
  end
end
if not id then
  id = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
  if not id then return false end
end
redis.call('SET', ARGV[3] .. id, ARGV[1], 'EX', ARGV[2])
local found = {id}
for at = 6, #ARGV do
  local value = redis.pcall('HGET', ARGV[4] .. id, ARGV[at])
  found[#found + 1] = type(value) == 'string' and value
end
return found
""")

#: lock, job, processing, next waiting (or lock again for none) | owner, id, whether there is a next, keep, fields...
#: -> 1, or 0 when the lock is not the owner's, or -1 when the job has left the queue.
COMPLETE: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if not redis.call('LPOS', KEYS[3], ARGV[2]) then
  redis.call('DEL', KEYS[1])
  return -1
end
local gone = redis.call('EXISTS', KEYS[2]) == 0
for at = 5, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
if gone then redis.call('EXPIRE', KEYS[2], ARGV[4]) end
if ARGV[3] == '1' then redis.call('RPUSH', KEYS[4], ARGV[2]) end
redis.call('LREM', KEYS[3], 1, ARGV[2])
redis.call('DEL', KEYS[1])
return 1
""")

#: lock, job, processing | owner, id, keep, fields... -> as COMPLETE. An expired lock is no one else's: if the job is
#: still there, it fails.
FAIL: Final = Script("""
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
if not redis.call('LPOS', KEYS[3], ARGV[2]) then
  redis.call('DEL', KEYS[1])
  return -1
end
local gone = redis.call('EXISTS', KEYS[2]) == 0
for at = 4, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
if gone then redis.call('EXPIRE', KEYS[2], ARGV[3]) end
redis.call('LREM', KEYS[3], 1, ARGV[2])
redis.call('DEL', KEYS[1])
return 1
""")

#: lock, job, processing | owner, id, seconds, attributes... -> the attributes of a job that was moved to `processing`
#: for the owner, now or before, and is locked for it; nil when it is another worker's, or has left.
LOCK: Final = Script("""
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return false end
if not redis.call('LPOS', KEYS[3], ARGV[2]) then return false end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
local found = {}
for at = 4, #ARGV do
  local value = redis.pcall('HGET', KEYS[2], ARGV[at])
  found[#found + 1] = type(value) == 'string' and value
end
return found
""")

#: waiting, processing, turn, seen | worker, turn in ms, looks, lock prefix, job prefix, most recoveries, count field,
#: failure (4 pairs) -> the ids that were put back and those that failed, or nil when it is another worker's turn.
#: A job is lost that as many looks in a row found without a lock and with the same count: a job that another worker or
#: a monitor put back in between has another count. `seen` holds looks and count by id, for the next look. A job whose
#: hash is no longer kept is not made again, and one that its worker had marked as failed has failed.
RECOVER: Final = Script("""
local turn = redis.call('GET', KEYS[3])
if turn and turn ~= ARGV[1] then return false end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
local stored = redis.call('GET', KEYS[4])
local before = stored and cjson.decode(stored) or {}
local seen, put_back, failed = {}, {}, {}
for _, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if redis.call('EXISTS', ARGV[4] .. id) == 0 then
    local job = ARGV[5] .. id
    local count = redis.pcall('HGET', job, ARGV[7])
    local known = type(count) == 'string' and count or ''
    local looks = 1
    if before[id] and before[id][2] == known then looks = before[id][1] + 1 end
    if looks < tonumber(ARGV[3]) then
      seen[id] = {looks, known}
    else
      local over = redis.pcall('HEXISTS', job, ARGV[10]) == 1
      local again = false
      if redis.call('EXISTS', job) == 1 and not over then
        again = type(count) ~= 'table' and (tonumber(known) or 0) < tonumber(ARGV[6])
        if again then
          redis.call('LPUSH', KEYS[1], id)
          put_back[#put_back + 1] = id
        else
          redis.pcall('HSET', job, unpack(ARGV, 8, 15))
          failed[#failed + 1] = id
        end
      end
      redis.call('LREM', KEYS[2], 1, id)
      if again then redis.call('HSET', job, ARGV[7], (tonumber(known) or 0) + 1) end
    end
  end
end
if next(seen) then
  redis.call('SET', KEYS[4], cjson.encode(seen), 'EX', 3600)
elseif stored then
  redis.call('DEL', KEYS[4])
end
return {put_back, failed}
""")

#: turn | worker -> whether the worker had the turn, which is free now.
LEAVE_TURN: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
""")

#: lock, waiting, processing | owner, id -> whether a job that was leased and not begun is back in its place.
RETURN: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('LPUSH', KEYS[2], ARGV[2])
if redis.call('LREM', KEYS[3], 1, ARGV[2]) == 0 then redis.call('LREM', KEYS[2], 1, ARGV[2]) end
return redis.call('DEL', KEYS[1])
""")
