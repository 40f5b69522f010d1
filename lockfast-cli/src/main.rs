//! The command line, `lockfast`.

use clap::Parser;

/// Locks that work across servers: exclusive access to a named resource, freed when its holder dies.
#[derive(Debug, Parser)]
#[command(name = "lockfast", version, arg_required_else_help = true)]
struct Args {}

fn main() {
    Args::parse();
}
