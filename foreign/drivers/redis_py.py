"""Drives the Lock of redis-py."""

import sys

from redis import Redis
from redis.exceptions import LockError

from lines import Refused, serve


class RedisPy:
    def __init__(self, redis):
        self.redis = redis

    def take(self, name, ttl, waits):
        # Without a timeout the key never expires.
        lock = self.redis.lock(name, timeout=ttl / 1000 if ttl else None)
        return lock if lock.acquire(blocking=waits) else None

    def forge(self, name):
        lock = self.redis.lock(name, timeout=30)
        lock.local.token = b"forged"
        return lock

    def extend(self, lock, ttl):
        try:
            lock.extend(ttl / 1000, replace_ttl=True)
        except LockError as error:
            raise Refused(error) from error

    def release(self, lock):
        try:
            lock.release()
        except LockError as error:
            raise Refused(error) from error


redis = Redis.from_url(sys.argv[1])
serve(RedisPy(redis), redis)
