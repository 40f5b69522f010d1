//! `lockfast acquire`: takes a lock that outlives this process, for scripts that span several commands.
//!
//! The right to it goes to standard output, or to a file that only its owner can read; never to a log or an argument.

use std::pin::pin;
use std::time::Duration;

use lockfast::{Builder, Error, Guard, Locks, Retry, Token};
use serde::Serialize;

use crate::args::Wanted;
use crate::cmd::inspect::Format;
use crate::cmd::token::TokenFile;
use crate::duration::brief;
use crate::exit::{Exit, Failure, conclude};
use crate::interrupt::interrupted;
use crate::out::put_next;
use crate::run::waiting::Contact;
use crate::settings::Settings;
use crate::show::json;

const EXAMPLES: &str = "\
Examples:
  lockfast acquire deploy --ttl 10m --token-file /run/deploy.token
  ./build.sh && lockfast renew --token-file /run/deploy.token && ./publish.sh
  lockfast release --token-file /run/deploy.token

  token=$(lockfast acquire -w 30s deploy) || exit 1          the same with a variable
  echo \"$token\" | lockfast release

Nobody renews it but you: after --ttl without `lockfast renew`, somebody else may have it. Where the work is one command,
`lockfast run KEY -- COMMAND` is safer: it renews, and ends the command when the lock is lost.

Exits 0 when it was acquired; 1 when somebody else has it, who is named on standard error; 69 when the store cannot be reached.";

/// Take a lock and leave it to its lease; prints the token to renew and release it with
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Write the token to this new file, readable by you alone, instead of standard output
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// What to print: the token alone, or an object with the fence too
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// The lease when nobody says anything: that of the library.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// How long telling the store the last things may take, once the answer is known.
pub(crate) const GOODBYE: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: AcquireArgs, settings: Settings) -> Exit {
    conclude(answer(&args, &settings).await)
}

async fn answer(args: &AcquireArgs, settings: &Settings) -> Result<Exit, Failure> {
    let mut stop = pin!(interrupted());
    // Order matters: a lock whose token cannot be written down would be nobody's.
    let mut file = args.token_file.as_deref().map(TokenFile::create).transpose()?;
    let ttl = args.wanted.ttl.or(settings.ttl).unwrap_or(DEFAULT_TTL);
    let locks = tokio::select! {
        locks = settings.connect(as_wanted(settings.builder().ttl(ttl), &args.wanted)) => locks?,
        signal = &mut stop => return Err(Failure::quiet(Exit::Signal(signal))),
    };
    let contact = Contact::new(&args.wanted.key);
    let taken = tokio::select! {
        biased;
        never = contact.listen(&locks) => match never {},
        taken = take(&locks, args, &mut file) => taken,
        signal = &mut stop => Err(Failure::quiet(Exit::Signal(signal))),
    };
    // A claim that is still waiting, and a lock whose token was not delivered, end now and not with their lease.
    let _ = locks.shutdown(GOODBYE).await;
    let token = taken?;
    file.into_iter().for_each(TokenFile::keep);
    let (fence, ttl) = (token.fence(), brief(token.ttl()));
    tracing::info!("acquired {:?} with fence {fence}; it is yours for {ttl}, and after each renew", args.wanted.key);
    Ok(Exit::Yes)
}

/// Takes the lock and delivers its token. Order matters: the lock outlives this process only from `detach` on, when the token
/// has been written. Killed before that, the process takes the lock with it.
async fn take(locks: &Locks, args: &AcquireArgs, file: &mut Option<TokenFile>) -> Result<Token, Failure> {
    let failed = |error: Error| Failure::while_(format!("acquiring {:?}", args.wanted.key), &error);
    let guard = enter(locks, &args.wanted).await.map_err(failed)?;
    let token = guard.token().map_err(failed)?;
    if let Err(failure) = hand_off(&token, args, file.as_mut()).await {
        // The token was not delivered, so no command could give the lock back.
        let _ = guard.release().await;
        return Err(failure);
    }
    guard.detach().await.map_err(failed)?;
    Ok(token)
}

/// What the flags say about every lock of this client.
fn as_wanted(mut builder: Builder, wanted: &Wanted) -> Builder {
    if let Some(name) = &wanted.name {
        builder = builder.note(name);
    }
    if wanted.patience() == Some(Duration::ZERO) {
        // Asked once, and told who has it.
        builder = builder.retry(Retry { count: Some(0), ..Retry::default() });
    }
    wanted.label.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
}

async fn enter(locks: &Locks, wanted: &Wanted) -> lockfast::Result<Guard> {
    let patience = wanted.patience().filter(|patience| !patience.is_zero());
    macro_rules! enter {
        ($face:expr, $wait:ident, $wait_within:ident) => {
            match patience {
                Some(patience) => $face.detached().$wait_within(patience).await,
                None => $face.detached().$wait().await,
            }
        };
    }
    match (wanted.slots, wanted.shared, wanted.also.is_empty()) {
        (Some(slots), ..) => enter!(locks.semaphore(&wanted.key, slots), acquire, acquire_within),
        (_, true, _) => enter!(locks.rwlock(&wanted.key), read, read_within),
        (.., true) => enter!(locks.mutex(&wanted.key), lock, lock_within),
        (.., false) => {
            let names = std::iter::once(&wanted.key).chain(&wanted.also);
            enter!(locks.multi(names), lock, lock_within)
        }
    }
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Acquired<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<&'a str>,
    fence: u64,
    owner: String,
    ttl_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

async fn hand_off(token: &Token, args: &AcquireArgs, file: Option<&mut TokenFile>) -> Result<(), Failure> {
    let in_file = file.is_some();
    if matches!(args.output, Format::Json) {
        put_next(json::pretty(&Acquired {
            key: &args.wanted.key,
            also: args.wanted.also.iter().map(String::as_str).collect(),
            fence: token.fence(),
            owner: token.owner().to_string(),
            ttl_seconds: json::seconds(token.ttl()),
            token: (!in_file).then(|| token.to_string()),
        }))
        .await
        .map_err(|_| nobody_reads())?;
    } else if !in_file {
        put_next(format!("{token}\n")).await.map_err(|_| nobody_reads())?;
    }
    file.map_or(Ok(()), |file| file.write(token))
}

fn nobody_reads() -> Failure {
    Failure::new(Exit::No, "nobody reads standard output, so nobody has the token; gave the lock back")
}
