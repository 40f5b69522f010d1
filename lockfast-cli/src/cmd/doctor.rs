//! `lockfast doctor`: checks whether the store is reachable, how fast it is, what it promises, and what is wrong with it.

use lockfast::{Error, Locks};
use serde::Serialize;

use crate::cmd::inspect::Format;
use crate::doctor::{self, Check, Scratch, Verdict};
use crate::exit::{Exit, Failure, conclude};
use crate::out::{escape_controls, print_result};
use crate::settings::{Settings, redacted_url};
use crate::show::json;

const EXAMPLES: &str = "\
Examples:
  lockfast doctor                                        the store of your settings
  lockfast doctor --store redis://cache.internal         another one, before you use it
  lockfast doctor > /dev/null && echo fine               for a health check
  lockfast doctor -o json | jq '.checks[] | select(.verdict != \"fine\")'

It locks and releases a key of its own, and leaves nothing in the store. Exits 0 when every check is fine, 1 when one is
wrong, 69 when the store cannot be reached, 78 when its URL is invalid.";

/// Check the store: reachable, how fast, what it promises, what is wrong
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Serialize)]
struct Findings {
    store: String,
    fine: bool,
    checks: Vec<Check>,
}

pub(crate) async fn run(args: DoctorArgs, settings: Settings) -> Exit {
    conclude(try_run(&args, &settings).await)
}

async fn try_run(args: &DoctorArgs, settings: &Settings) -> Result<Exit, Failure> {
    let mut checks = vec![Check::fine("url", redacted_url(&settings.store))];
    let clients = check_store(settings, &mut checks).await;
    if let Err(error) = &clients {
        checks.push(Check::wrong("store", error.to_string()));
    }
    checks.extend(doctor::store_checks(&settings.store, settings.prefix.as_deref()).await);
    let fine = checks.iter().all(|check| check.verdict != Verdict::Wrong);
    let findings = Findings { store: redacted_url(&settings.store), fine, checks };
    print_result(&match args.output {
        Format::Text => text(&findings),
        Format::Json => json::pretty(&findings),
    })?;
    match clients {
        // The checks above contain the error.
        Err(Error::Invalid(_) | Error::Unsupported(_)) => Ok(Exit::Config),
        Err(_) => Ok(Exit::StoreUnreachable),
        Ok(_) if findings.fine => Ok(Exit::Yes),
        Ok(_) => Ok(Exit::No),
    }
}

/// The checks that need the store. Its clients are returned open, since later checks look at files of an open store.
async fn check_store(settings: &Settings, checks: &mut Vec<Check>) -> Result<(Locks, Locks), Error> {
    let first = settings.builder().connect(&settings.store).await?;
    let second = settings.builder().connect(&settings.store).await?;
    let queues = first.inspect("").await?.len();
    checks.push(Check::fine("store", format!("answers; queues in use: {queues}")));
    let scratch = Scratch::new();
    checks.push(doctor::measure_latency(&first, &scratch).await?);
    checks.push(doctor::measure_hand_off(&first, &second, &scratch).await?);
    checks.extend(doctor::guarantee_checks(&first));
    Ok((first, second))
}

fn text(findings: &Findings) -> String {
    let word = |verdict| match verdict {
        Verdict::Fine => "ok",
        Verdict::Note => "note",
        Verdict::Wrong => "WRONG",
    };
    let row =
        |check: &Check| format!("{:<6} {:<13} {}\n", word(check.verdict), check.name, escape_controls(&check.text));
    findings.checks.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_check_stands_out_and_is_escaped() {
        let checks =
            vec![Check::fine("url", "memory:"), Check::note("reach", "one"), Check::wrong("file", "\u{1b}[2J")];
        let shown = text(&Findings { store: String::new(), fine: false, checks });
        assert_eq!(shown, "ok     url           memory:\nnote   reach         one\nWRONG  file          \\u{1b}[2J\n");
    }
}
