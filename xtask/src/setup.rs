//! `cargo xtask setup`: installs the programs that the checks need and that a fresh Debian machine with Rust lacks.
//!
//! Looks for each program first, so that a second run changes nothing; calls the package manager only for missing programs,
//! and prints the exact command when it lacks the rights.

use std::io::{IsTerminal, stdin};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::invocation::Invocation;
use crate::peers;

/// A component of the Rust toolchain, and a command that succeeds only when it is installed. (With rustup, the program
/// `cargo-fmt` exists also when the component does not: looking for the file is not enough.)
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "cargo fmt --version"), ("clippy", "cargo clippy --version")];

/// A program for building or testing, a command that succeeds only when it is installed, and its Debian packages.
const PROGRAMS: &[Program] = &[
    Program { title: "a C compiler", probe: "cc --version", packages: &["gcc", "libc6-dev"] },
    Program { title: "a shell with job control", probe: "bash --version", packages: &["bash"] },
    Program { title: "mount and time namespaces (unshare)", probe: "unshare --version", packages: &["util-linux"] },
    Program { title: "mount", probe: "mount --version", packages: &["mount"] },
    Program { title: "parent-death signals (setpriv)", probe: "setpriv --version", packages: &["util-linux"] },
    // Debian may start its service; no test uses that one.
    Program { title: "a Redis server", probe: "redis-server --version", packages: &["redis-server"] },
    Program { title: "a tool for certificates (openssl)", probe: "openssl version", packages: &["openssl"] },
    Program { title: "Python", probe: "python3 --version", packages: &["python3"] },
    Program { title: "pip", probe: "python3 -m pip --version", packages: &["python3-pip"] },
    Program { title: "Node.js", probe: "node --version", packages: &["nodejs"] },
    Program { title: "npm", probe: "npm --version", packages: &["npm"] },
];

struct Program {
    title: &'static str,
    probe: &'static str,
    packages: &'static [&'static str],
}

/// The rights of this user on this machine.
#[derive(Clone, Copy, Debug)]
struct Rights {
    has_apt: bool,
    is_root: bool,
    has_sudo: bool,
    /// Whether standard input is a terminal, at which a password can be typed.
    is_attended: bool,
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let is_missing = |probe: &str| !Invocation::new(probe).succeeds(root);

    let components: Vec<&str> =
        COMPONENTS.iter().filter(|(_, probe)| is_missing(probe)).map(|(name, _)| *name).collect();
    if !components.is_empty() {
        let add = Invocation::new("rustup component add").with_args(&components);
        println!("setup: {} missing; running `{add}`", components.join(" and "));
        add.run(root).context(
            "could not add it to the Rust toolchain; without rustup, install it the way your Rust compiler was installed",
        )?;
    }

    let programs: Vec<&Program> = PROGRAMS.iter().filter(|program| is_missing(program.probe)).collect();
    if !programs.is_empty() {
        for install in installation(&programs, Rights::of_this_user(root))? {
            println!("setup: running `{install}`");
            install.run(root)?;
        }
        if let Some(program) = programs.iter().find(|program| is_missing(program.probe)) {
            bail!("installed {}, but `{}` still fails", program.packages.join(" "), program.probe);
        }
    }

    let peers = peers::missing(root)?;
    for installation in &peers {
        installation.run(root)?;
    }

    if components.is_empty() && programs.is_empty() && peers.is_empty() {
        println!("setup: rustfmt, clippy, a C compiler and the programs of the tests are installed; nothing to do");
    } else {
        println!("setup: done");
    }
    Ok(())
}

impl Rights {
    fn of_this_user(root: &Path) -> Self {
        let user = Invocation::new("id -u").read(root).unwrap_or_default();
        Self {
            has_apt: Invocation::new("apt-get --version").succeeds(root),
            is_root: user.trim() == "0",
            has_sudo: Invocation::new("sudo -V").succeeds(root),
            is_attended: stdin().is_terminal(),
        }
    }
}

/// The commands that install `missing`, or the reason why this user has to do it.
fn installation(missing: &[&Program], rights: Rights) -> Result<Vec<Invocation>> {
    let titles = missing.iter().map(|program| program.title).collect::<Vec<_>>().join(" and ");
    let mut packages: Vec<&str> = Vec::new();
    for package in missing.iter().flat_map(|program| program.packages) {
        if !packages.contains(package) {
            packages.push(package);
        }
    }
    if !rights.has_apt {
        bail!("{titles} is missing and this machine has no apt-get; install it with the system's package manager");
    }
    let prefix = match rights {
        Rights { is_root: true, .. } => "",
        Rights { has_sudo: true, is_attended: true, .. } => "sudo ",
        // Without a terminal no password can be typed: fail at once instead of hanging.
        Rights { has_sudo: true, is_attended: false, .. } => "sudo -n ",
        _ => bail!(
            "{titles} is missing, and installing it takes root; as root, run: apt-get install -y {}",
            packages.join(" ")
        ),
    };
    let apt = |rest: &str| Invocation::new(&format!("{prefix}env DEBIAN_FRONTEND=noninteractive apt-get {rest}"));
    Ok(vec![apt("update"), apt("install -y --no-install-recommends").with_args(&packages)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Rights = Rights { has_apt: true, is_root: true, has_sudo: false, is_attended: false };

    const PACKAGES: &str = "gcc libc6-dev bash util-linux mount redis-server openssl python3 python3-pip nodejs npm";

    fn commands(rights: Rights) -> Vec<String> {
        let missing: Vec<&Program> = PROGRAMS.iter().collect();
        installation(&missing, rights).unwrap().iter().map(ToString::to_string).collect()
    }

    fn refusal(rights: Rights) -> String {
        let missing: Vec<&Program> = PROGRAMS.iter().collect();
        installation(&missing, rights).unwrap_err().to_string()
    }

    #[test]
    fn root_installs_without_sudo() {
        let apt = "env DEBIAN_FRONTEND=noninteractive apt-get";
        let install = format!("{apt} install -y --no-install-recommends {PACKAGES}");
        assert_eq!(commands(ROOT), [format!("{apt} update"), install]);
    }

    #[test]
    fn sudo_asks_for_a_password_only_at_a_terminal() {
        let user = Rights { is_root: false, has_sudo: true, ..ROOT };
        assert!(commands(user)[0].starts_with("sudo -n env "));
        assert!(commands(Rights { is_attended: true, ..user })[0].starts_with("sudo env "));
    }

    #[test]
    fn without_rights_the_command_for_root_is_printed() {
        let message = refusal(Rights { is_root: false, ..ROOT });
        assert!(message.contains(&format!("as root, run: apt-get install -y {PACKAGES}")), "{message}");
    }

    #[test]
    fn without_apt_the_missing_thing_is_named() {
        let message = refusal(Rights { has_apt: false, ..ROOT });
        assert!(message.contains("a C compiler") && message.contains("no apt-get"), "{message}");
    }
}
