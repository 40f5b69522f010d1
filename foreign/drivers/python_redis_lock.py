"""Drives python-redis-lock. It counts in whole seconds."""

import sys

from redis import Redis
from redis_lock import Lock, NotAcquired

from lines import Refused, serve


class PythonRedisLock:
    def __init__(self, redis):
        self.redis = redis

    def take(self, name, ttl, waits):
        # Without `expire` the key never expires.
        lock = Lock(self.redis, name, expire=ttl // 1000 or None)
        return lock if lock.acquire(blocking=waits) else None

    def forge(self, name):
        # "Note that if you specify [an id] then the lock is marked as held."
        return Lock(self.redis, name, expire=30, id="forged")

    def extend(self, lock, ttl):
        try:
            lock.extend(ttl // 1000)
        except NotAcquired as error:
            raise Refused(error) from error

    def release(self, lock):
        try:
            lock.release()
        except NotAcquired as error:
            raise Refused(error) from error


redis = Redis.from_url(sys.argv[1])
serve(PythonRedisLock(redis), redis)
