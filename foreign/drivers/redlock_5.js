// Drives redlock 5, which has been a beta for years and is widely used, over ioredis.
"use strict";

const Redis = require("ioredis");
const { default: Redlock, Lock, ExecutionError } = require("redlock-5");
const { Refused, serve } = require("./lines");

const redis = new Redis(process.argv[2]);
const patient = new Redlock([redis], { retryCount: -1 });
const hasty = new Redlock([redis], { retryCount: 0 });
// Emitted for every resource that is locked; without a listener it would end the program.
for (const redlock of [patient, hasty]) redlock.on("error", () => {});

// No quorum is an answer; so is that a lock is too old to be extended, which is a plain error.
async function answered(what) {
  try {
    return await what;
  } catch (error) {
    const isAnswer = error instanceof ExecutionError || /already-expired/.test(error.message);
    throw isAnswer ? new Refused(error.message) : error;
  }
}

serve({
  async take(name, ttl, waits) {
    try {
      return await answered((waits ? patient : hasty).acquire([name], ttl));
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  },
  forge: (name) => new Lock(hasty, [name], "forged", [], Date.now() + 30000),
  extend: (lock, ttl) => answered(hasty.extend(lock, ttl)),
  release: (lock) => answered(hasty.release(lock)),
}, redis);
