//! `lockfast completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::{Exit, conclude};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  source <(lockfast completions bash)                                  for this shell
  lockfast completions bash > ~/.local/share/bash-completion/completions/lockfast
  lockfast completions zsh > ~/.zfunc/_lockfast
  lockfast completions fish > ~/.config/fish/completions/lockfast.fish";

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Exit {
    conclude(out::put(&script(args.shell)).map(|()| Exit::Yes))
}

fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(Args::command()), "lockfast", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The command line without what is not meant for people: completion scripts would list hidden commands too, so they are
/// left out from the start.
pub(crate) fn visible(whole: clap::Command) -> clap::Command {
    if !whole.get_subcommands().any(clap::Command::is_hide_set) {
        return whole;
    }
    let shown: Vec<_> = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    clap::Command::new("lockfast")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_help(whole.get_after_help().cloned().unwrap_or_default())
        .args(whole.get_arguments().cloned())
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_names_our_commands() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            assert!(script.contains("completions") && script.contains("lockfast"), "{shell}");
        }
    }

    #[test]
    fn what_is_hidden_is_not_completed() {
        let secret = clap::Command::new("backstage").hide(true);
        let mut whole = visible(Args::command().subcommand(secret));
        assert!(whole.find_subcommand("backstage").is_none() && whole.find_subcommand("man").is_some());
        let mut text = Vec::new();
        clap_complete::generate(Shell::Bash, &mut whole, "lockfast", &mut text);
        assert!(!String::from_utf8_lossy(&text).contains("backstage"));
    }
}
