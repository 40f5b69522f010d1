//! The rights that locks need, and no others.

use crate::stage::Admin;

/// What the user of an application needs besides the keys that its names are. The same line is in `docs/stores/redis.md`.
pub(crate) const COMMANDS: &str = "+info +evalsha +eval +subscribe +unsubscribe +publish +pubsub|numsub +time +exists +get \
                        +getrange +mget +set +psetex +setrange +rename +del +pttl \
                        +pexpire +pexpireat +incrby +zadd +zrem +zcard +zcount +zrank +zscore +zrange +zrangebyscore \
                        +zrevrangebyscore +zrangebylex +zremrangebyscore +hget +hmget +hset +hdel +hincrby";
/// Keys and channels of our own.
const OURS: &str = "~lockfast:* resetchannels &lockfast:*";

pub(crate) fn user(admin: &mut Admin, name: &str, names: &str, commands: &str) {
    admin.run(&format!("ACL SETUSER {name} reset on >pw {OURS} {names} -@all {commands}"));
}
