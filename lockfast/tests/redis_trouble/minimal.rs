//! The rights that locks need, as an ACL without any others.

use crate::fixture::Admin;

/// The commands that an application's user needs. `docs/stores/redis.md` has the same list.
pub(crate) const COMMANDS: &str = "+info +evalsha +eval +subscribe +unsubscribe +publish +pubsub|numsub +time +exists +get \
                        +getrange +mget +set +psetex +setrange +rename +del +pttl \
                        +pexpire +pexpireat +incrby +zadd +zrem +zcard +zcount +zrank +zscore +zrange +zrangebyscore \
                        +zrevrangebyscore +zrangebylex +zremrangebyscore +hget +hmget +hset +hdel +hincrby";
/// The keys and channels of lockfast itself, as rules of an ACL.
const LIBRARY_KEYS: &str = "~lockfast:* resetchannels &lockfast:*";

/// Creates a user with the library's own keys, these names and these commands, and nothing else.
pub(crate) fn create_user(admin: &mut Admin, name: &str, names: &str, commands: &str) {
    admin.run(&format!("ACL SETUSER {name} reset on >pw {LIBRARY_KEYS} {names} -@all {commands}"));
}
