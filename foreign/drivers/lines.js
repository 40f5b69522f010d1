// The protocol of the drivers (see `foreign/src/main.rs`), for drivers in JavaScript.
//
// A client offers `take(name, ttl, waits)`, `forge(name)`, `extend(lock, ttl)` and `release(lock)`; times are in
// milliseconds. The last two throw `Refused`. Any other exception ends the driver, and with it the test.
"use strict";

const readline = require("node:readline");

class Refused extends Error {}

async function serve(client, redis) {
  let lock = null;
  await redis.ping();
  say("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    switch (verb) {
      case "try":
        lock = await client.take(words[0], Number(words[1]), false);
        say(lock === null ? "no" : "yes");
        break;
      case "lock":
        lock = await client.take(words[0], Number(words[1]), true);
        say("yes");
        break;
      case "forge":
        lock = client.forge(words[0]);
        say("forged");
        break;
      case "extend":
        await sayOutcome(client.extend(lock, Number(words[0])));
        break;
      case "release":
        await sayOutcome(client.release(lock));
        break;
      case "hammer":
        say(await hammer(client, words[0], Number(words[1])));
        break;
      case "count":
        await count(client, redis, words[0], words[1], Number(words[2]));
        say("done");
        break;
      default:
        throw new Error(`unknown command ${line}`);
    }
  }
  process.exit(0);
}

async function hammer(client, name, times) {
  let acquired = 0;
  for (let i = 0; i < times; i++) {
    const lock = await client.take(name, 30000, false);
    if (lock !== null) {
      acquired++;
      await client.release(lock);
    }
  }
  return acquired;
}

async function count(client, redis, name, counter, times) {
  for (let i = 0; i < times; i++) {
    const lock = await client.take(name, 2000, true);
    const value = Number(await redis.get(counter));
    await redis.set(counter, value + 1);
    await client.release(lock);
  }
}

async function sayOutcome(action) {
  try {
    await action;
    say("done");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(`refused: ${error.message}`);
  }
}

function say(word) {
  process.stdout.write(`${word}\n`);
}

module.exports = { Refused, serve };
