// Drives redlock 4, what npm installs for `redlock`, over ioredis.
"use strict";

const Redis = require("ioredis");
const Redlock = require("redlock");
const { Refused, serve } = require("./lines");

const redis = new Redis(process.argv[2]);
const patient = new Redlock([redis], { retryCount: -1 });
const hasty = new Redlock([redis], { retryCount: 0 });

// An error of redlock's own is an answer.
async function answered(what) {
  try {
    return await what;
  } catch (error) {
    throw error instanceof Redlock.LockError ? new Refused(error.message) : error;
  }
}

serve({
  async take(name, ttl, waits) {
    try {
      return await answered((waits ? patient : hasty).lock(name, ttl));
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  },
  forge: (name) => new Redlock.Lock(hasty, [name], "forged", Date.now() + 30000, 1, 0),
  extend: (lock, ttl) => answered(hasty.extend(lock, ttl)),
  release: (lock) => answered(hasty.unlock(lock)),
}, redis);
