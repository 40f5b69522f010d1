"""The protocol of the drivers (see `foreign/src/main.rs`), for drivers in Python.

A client offers `take(name, ttl, waits)`, `forge(name)`, `extend(lock, ttl)` and `release(lock)`; times are in milliseconds.
The last two raise `Refused`. Any other exception ends the driver, and with it the test.
"""

import sys


class Refused(Exception):
    pass


def serve(client, redis):
    lock = None
    say("ready")
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "try":
            lock = client.take(words[0], int(words[1]), False)
            say("no" if lock is None else "yes")
        elif verb == "lock":
            lock = client.take(words[0], int(words[1]), True)
            say("yes")
        elif verb == "forge":
            lock = client.forge(words[0])
            say("forged")
        elif verb == "extend":
            say_outcome(lambda: client.extend(lock, int(words[0])))
        elif verb == "release":
            say_outcome(lambda: client.release(lock))
        elif verb == "hammer":
            say(hammer(client, words[0], int(words[1])))
        elif verb == "count":
            count(client, redis, words[0], words[1], int(words[2]))
            say("done")
        else:
            raise ValueError(f"unknown command {line!r}")


def hammer(client, name, times):
    acquired = 0
    for _ in range(times):
        lock = client.take(name, 30000, False)
        if lock is not None:
            acquired += 1
            client.release(lock)
    return acquired


def count(client, redis, name, counter, times):
    for _ in range(times):
        lock = client.take(name, 2000, True)
        value = int(redis.get(counter) or 0)
        redis.set(counter, value + 1)
        client.release(lock)


def say_outcome(action):
    try:
        action()
        say("done")
    except Refused as refused:
        say(f"refused: {refused}")


def say(word):
    print(word, flush=True)
