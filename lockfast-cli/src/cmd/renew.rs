//! `lockfast renew`: renews the lease of a lock that `acquire` took.

use std::time::Duration;

use crate::cmd::token::TokenSource;
use crate::duration::{self, brief};
use crate::exit::{Exit, Failure, conclude};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  lockfast renew --token-file /run/deploy.token                for the same lease as it was acquired with
  lockfast renew --token-file /run/deploy.token --ttl 1h       for an hour from now; never shortens
  echo \"$token\" | lockfast renew || exit 1                     stop when it is lost

Exits 0 when it is still held, and renewed; 1 when it is lost: stop the protected work; 69 when the store cannot be reached.";

/// Renew the lease (TTL) of a lock that `acquire` took
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RenewArgs {
    #[command(flatten)]
    token: TokenSource,
    /// The new lease (TTL), counted from now [default: that of `acquire`]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    ttl: Option<Duration>,
}

pub(crate) async fn run(args: RenewArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &RenewArgs, settings: &Settings) -> Result<Exit, Failure> {
    let token = args.token.read()?;
    let ttl = args.ttl.unwrap_or(token.ttl());
    let locks = settings.locks().await?;
    let renewed = locks.renew_token(&token, ttl).await;
    renewed.map_err(|error| Failure::from_error("renewing a token", &error))?;
    tracing::info!("renewed for {}", brief(ttl));
    Ok(Exit::Yes)
}
