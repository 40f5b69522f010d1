//! The command line, `lockfast`: arguments become settings, settings a client, and a command returns the exit code.
//!
//! Standard output belongs to the command's result, or to the child; everything else goes to standard error.

mod args;
mod cmd;
mod doctor;
mod duration;
mod exit;
mod guardian;
mod interrupt;
mod log;
mod out;
mod pattern;
mod run;
mod settings;
mod show;
mod stderr;

use clap::{CommandFactory, Parser};

use args::{Args, Command};
use exit::{Exit, Failure};
use settings::Settings;

fn main() -> Exit {
    let _flush = stderr::Flush::at_the_end();
    // Before anything else: a guardian is started for every command, and must not depend on settings.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == run::guardian_connection::GUARDIAN_COMMAND) {
        // The words after the `--` are the command.
        return match guardian::main(words.skip(1).collect()) {
            Ok(()) => Exit::Yes,
            Err(_) => Exit::Failed,
        };
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report_parse_error(&error),
    };
    match Settings::load(&args.globals) {
        Ok(settings) => {
            log::start(&args.globals, settings.log_format);
            dispatch(args.command, settings)
        }
        Err(failure) => {
            log::start(&args.globals, args.globals.log_format.unwrap_or_default());
            failure.report()
        }
    }
}

fn dispatch(command: Command, settings: Settings) -> Exit {
    match command {
        Command::Run(args) => run_to_end(cmd::run::run(*args, settings)),
        Command::Elect(args) => run_to_end(cmd::elect::run(*args, settings)),
        Command::Ls(args) => run_to_end(cmd::ls::run(args, settings)),
        Command::Inspect(args) => run_to_end(cmd::inspect::run(args, settings)),
        Command::Status(args) => run_to_end(cmd::status::run(args, settings)),
        Command::Acquire(args) => run_to_end(cmd::acquire::run(args, settings)),
        Command::Renew(args) => run_to_end(cmd::renew::run(args, settings)),
        Command::Release(args) => run_to_end(cmd::release::run(args, settings)),
        Command::Break(args) => run_to_end(cmd::break_::run(args, settings)),
        Command::Watch(args) => run_to_end(cmd::watch::run(args, settings)),
        Command::Stats(args) => run_to_end(cmd::stats::run(args, settings)),
        Command::Doctor(args) => run_to_end(cmd::doctor::run(args, settings)),
        Command::Completions(args) => cmd::completions::run(&args),
        Command::Man(args) => cmd::man::run(&args),
    }
}

/// Runs a command to its end, on a runtime of its own.
fn run_to_end(command: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(command);
            // Work that is left on another thread, like the lookup of a host, is not waited for.
            runtime.shutdown_background();
            exit
        }
        Err(error) => Failure::new(Exit::Failed, format!("starting: {error}")).report(),
    }
}

/// Prints why the command line could not be parsed, or the help that it asked for. Returns the exit code.
fn report_parse_error(error: &clap::Error) -> Exit {
    // If the reader has left, the text cannot be shown anywhere else.
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Yes;
    }
    // `run` and `elect` do not use codes that their child may use.
    let matches = Args::command().ignore_errors(true).try_get_matches().ok();
    match matches.as_ref().and_then(|matches| matches.subcommand_name()) {
        Some("run" | "elect") => Exit::RunUsage,
        _ => Exit::Usage,
    }
}
