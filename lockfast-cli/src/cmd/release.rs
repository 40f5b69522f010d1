//! `lockfast release`: releases a lock that `acquire` took.

use lockfast::Error;

use crate::cmd::SHUTDOWN_WITHIN;
use crate::cmd::token::TokenSource;
use crate::exit::{Exit, Failure, conclude};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  lockfast release --token-file /run/deploy.token              and removes the file
  echo \"$token\" | lockfast release
  trap 'lockfast release --token-file \"$file\"' EXIT            at the end of a script, however it ends

Exits 0 when it was released; 1 when it was not held any more, so that there may have been another holder in the meantime;
69 when the store cannot be reached.";

/// Release a lock that `acquire` took
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    token: TokenSource,
}

pub(crate) async fn run(args: ReleaseArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &ReleaseArgs, settings: &Settings) -> Result<Exit, Failure> {
    let token = args.token.read()?;
    let locks = settings.locks().await?;
    let released = locks.release_token(&token).await;
    if matches!(released, Ok(()) | Err(Error::Lost { .. })) {
        args.token.remove();
    }
    let _ = locks.shutdown(SHUTDOWN_WITHIN).await;
    released.map_err(|error| Failure::from_error("releasing a token", &error))?;
    Ok(Exit::Yes)
}
