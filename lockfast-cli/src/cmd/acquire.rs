//! `lockfast acquire`: takes a detached lock, which outlives this process, for scripts that span several commands.
//!
//! The token, which is the right to renew and release, goes to standard output or to a file that only its owner can read;
//! never to a log or an argument.

use std::pin::pin;
use std::time::Duration;

use lockfast::{Builder, Error, Guard, Locks, Retry, Token};
use serde::Serialize;

use crate::args::LockArgs;
use crate::cmd::SHUTDOWN_WITHIN;
use crate::cmd::inspect::Format;
use crate::cmd::token::TokenFile;
use crate::duration::brief;
use crate::exit::{Exit, Failure, conclude};
use crate::interrupt::interruption;
use crate::out::print_next;
use crate::run::waiting::StoreStatus;
use crate::settings::Settings;
use crate::show::json;

const EXAMPLES: &str = "\
Examples:
  lockfast acquire deploy --ttl 10m --token-file /run/deploy.token
  ./build.sh && lockfast renew --token-file /run/deploy.token && ./publish.sh
  lockfast release --token-file /run/deploy.token

  token=$(lockfast acquire -w 30s deploy) || exit 1          the same with a variable
  echo \"$token\" | lockfast release

The lease is not renewed automatically: after --ttl without `lockfast renew`, the lock passes to the next waiter. Where the
work is one command, `lockfast run KEY -- COMMAND` is safer: it renews, and ends the command when the lock is lost.

Exits 0 when the lock was acquired; 1 when it is held, with the holder on standard error; 69 when the store cannot be
reached.";

/// Take a lock for its lease (TTL), and print the token to renew and release it with
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Write the token to this new file, readable by you alone, instead of standard output
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// What to print: the token alone, or an object with the fencing token (fence) too
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(crate) async fn run(args: AcquireArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &AcquireArgs, settings: &Settings) -> Result<Exit, Failure> {
    let mut interruption = pin!(interruption());
    // Order matters: the file is created first. A lock whose token cannot be written could not be released.
    let mut file = args.token_file.as_deref().map(TokenFile::create).transpose()?;
    let ttl = settings.ttl_with_flag(args.lock.ttl);
    let locks = tokio::select! {
        locks = settings.connect(with_lock_args(settings.builder().ttl(ttl), &args.lock)) => locks?,
        signal = &mut interruption => return Err(Failure::quiet(Exit::Signal(signal))),
    };
    let status = StoreStatus::new(&args.lock.key);
    let result = tokio::select! {
        biased;
        never = status.listen(&locks) => match never {},
        result = take(&locks, args, &mut file) => result,
        signal = &mut interruption => Err(Failure::quiet(Exit::Signal(signal))),
    };
    // A claim that is still waiting, and a lock whose token was not delivered, end here instead of with their lease.
    let _ = locks.shutdown(SHUTDOWN_WITHIN).await;
    let token = result?;
    file.into_iter().for_each(TokenFile::keep);
    let (fence, ttl) = (token.fence(), brief(token.ttl()));
    tracing::info!(
        "acquired {:?} with fence {fence}; its lease is {ttl} from now and from each renewal",
        args.lock.key
    );
    Ok(Exit::Yes)
}

/// Takes the lock and delivers its token. Order matters: the lock outlives this process only from `detach` on, when the token
/// has been written. If the process is killed before that, its lock ends with it.
async fn take(locks: &Locks, args: &AcquireArgs, file: &mut Option<TokenFile>) -> Result<Token, Failure> {
    let to_failure = |error: Error| Failure::from_error(format!("acquiring {:?}", args.lock.key), &error);
    let guard = acquire(locks, &args.lock).await.map_err(to_failure)?;
    let token = guard.token().map_err(to_failure)?;
    if let Err(failure) = deliver(&token, args, file.as_mut()).await {
        // The token was not delivered, so no other command could release the lock.
        let _ = guard.release().await;
        return Err(failure);
    }
    guard.detach().await.map_err(to_failure)?;
    Ok(token)
}

/// Applies the flags that concern every lock of this client.
fn with_lock_args(mut builder: Builder, lock: &LockArgs) -> Builder {
    if let Some(name) = &lock.name {
        builder = builder.note(name);
    }
    if lock.patience() == Some(Duration::ZERO) {
        // One attempt; a refusal names the holder.
        builder = builder.retry(Retry { count: Some(0), ..Retry::default() });
    }
    lock.label.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
}

/// Waits for the lock as the flags say: one of the primitives, for ever or for a limited time.
async fn acquire(locks: &Locks, lock: &LockArgs) -> lockfast::Result<Guard> {
    // Without patience, the client's retry setting makes it one attempt.
    let patience = lock.patience().filter(|patience| !patience.is_zero());
    /// Acquires through one of the primitives, which share options but not verbs.
    macro_rules! acquire {
        ($primitive:expr, $wait:ident, $wait_within:ident) => {
            match patience {
                Some(patience) => $primitive.detached().$wait_within(patience).await,
                None => $primitive.detached().$wait().await,
            }
        };
    }
    match (lock.slots, lock.shared, lock.also.is_empty()) {
        (Some(slots), ..) => acquire!(locks.semaphore(&lock.key, slots), acquire, acquire_within),
        (_, true, _) => acquire!(locks.rwlock(&lock.key), read, read_within),
        (.., true) => acquire!(locks.mutex(&lock.key), lock, lock_within),
        (.., false) => {
            let names = std::iter::once(&lock.key).chain(&lock.also);
            acquire!(locks.multi(names), lock, lock_within)
        }
    }
}

/// The output of `-o json`.
#[derive(Serialize)]
struct AcquiredLock<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<&'a str>,
    fence: u64,
    owner: String,
    ttl_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

async fn deliver(token: &Token, args: &AcquireArgs, file: Option<&mut TokenFile>) -> Result<(), Failure> {
    let in_file = file.is_some();
    if matches!(args.output, Format::Json) {
        print_next(json::pretty(&AcquiredLock {
            key: &args.lock.key,
            also: args.lock.also.iter().map(String::as_str).collect(),
            fence: token.fence(),
            owner: token.owner().to_string(),
            ttl_seconds: json::seconds(token.ttl()),
            token: (!in_file).then(|| token.to_string()),
        }))
        .await
        .map_err(|_| no_reader_failure())?;
    } else if !in_file {
        print_next(format!("{token}\n")).await.map_err(|_| no_reader_failure())?;
    }
    file.map_or(Ok(()), |file| file.write(token))
}

fn no_reader_failure() -> Failure {
    Failure::new(Exit::No, "standard output has no reader, so the token was not delivered; released the lock")
}
