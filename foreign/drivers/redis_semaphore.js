// Drives the Mutex of redis-semaphore, over ioredis. It does not report whether a release had an effect.
"use strict";

const Redis = require("ioredis");
const { Mutex } = require("redis-semaphore");
const { Refused, serve } = require("./lines");

const redis = new Redis(process.argv[2]);

serve({
  async take(name, ttl, waits) {
    // Not refreshed, so that a lease can end; 60 s is longer than any test.
    const patience = waits ? { acquireTimeout: 60000 } : { acquireAttemptsLimit: 1 };
    const mutex = new Mutex(redis, name, { lockTimeout: ttl, refreshInterval: 0, ...patience });
    return (await mutex.tryAcquire()) ? mutex : null;
  },
  forge: (name) =>
    new Mutex(redis, name, { lockTimeout: 30000, refreshInterval: 0, identifier: "forged", acquiredExternally: true }),
  async extend(mutex, _ttl) {
    // The method that its refresh timer would call.
    if (!(await mutex._refresh())) throw new Refused("it is not ours");
  },
  release: (mutex) => mutex.release(),
}, redis);
