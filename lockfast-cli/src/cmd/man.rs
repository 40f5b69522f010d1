//! `lockfast man`: the manual pages, made from the same texts as `--help`.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Args;
use crate::exit::{Exit, Failure, conclude};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  lockfast man | man -l -                                    read the page
  lockfast man --dir ~/.local/share/man/man1                 install all pages, one for each command
  man lockfast-ls                                            then read the page of one command";

/// Print the manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write one page for each command into this directory instead
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Exit {
    conclude(match &args.dir {
        Some(dir) => write_all(dir),
        None => {
            let (_, text) = pages().remove(0);
            out::print_result(&text).map(|()| Exit::Yes)
        }
    })
}

fn write_all(dir: &Path) -> Result<Exit, Failure> {
    let to_failure = |error| {
        Failure::new(Exit::No, format!("writing manual pages to {}: {error}; choose another --dir", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(to_failure)?;
    for (name, text) in pages() {
        std::fs::write(dir.join(format!("{name}.1")), text).map_err(to_failure)?;
    }
    Ok(Exit::Yes)
}

/// Each page with its name; the first is the program's.
fn pages() -> Vec<(String, String)> {
    let mut program = Args::command().disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().map(|command| {
        let name = format!("lockfast-{}", command.get_name());
        (name, command.clone())
    });
    let render = |(name, command): (String, clap::Command)| {
        let mut text = Vec::new();
        Man::new(command).title(&name).render(&mut text).expect("writing to memory does not fail");
        (name, String::from_utf8_lossy(&text).into_owned())
    };
    std::iter::once(("lockfast".to_owned(), program.clone())).chain(commands).map(render).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_the_program_and_for_each_command() {
        let pages = pages();
        assert_eq!(pages[0].0, "lockfast");
        for command in Args::command().get_subcommands() {
            let page = format!("lockfast-{}", command.get_name());
            let (_, text) =
                pages.iter().find(|(name, _)| *name == page).unwrap_or_else(|| panic!("{page} has no page"));
            assert!(text.contains("Examples:"), "{page} teaches by example");
        }
        assert!(pages.iter().all(|(_, text)| !text.contains(crate::run::guardian_connection::GUARDIAN_COMMAND)));
    }
}
