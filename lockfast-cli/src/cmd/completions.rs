//! `lockfast completions`: completion scripts for shells.

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
    conclude(out::print_result(&script(args.shell)).map(|()| Exit::Yes))
}

fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "lockfast", &mut text);
    String::from_utf8_lossy(&text).into_owned()
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
    fn the_guardian_command_is_not_completed() {
        for shell in Shell::value_variants() {
            assert!(!script(*shell).contains(crate::run::guardian_connection::GUARDIAN_COMMAND), "{shell}");
        }
    }
}
