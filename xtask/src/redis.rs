//! Which Redis server the tests start: the `redis-server` on PATH, or the one that somebody chose.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::invocation::Invocation;

/// Read by the crate `servers`, which starts them.
const PROGRAM: &str = "LOCKFAST_REDIS_SERVER";

/// A server program; the default is the one on PATH.
#[derive(Debug, Default)]
pub(crate) struct Server {
    chosen: Option<String>,
}

impl Server {
    /// The program that the environment names, if it names one.
    pub(crate) fn chosen() -> Result<Self> {
        match std::env::var(PROGRAM) {
            Ok(program) => Self::at(&program).with_context(|| format!("the environment says {PROGRAM}={program}")),
            Err(_) => Ok(Self::default()),
        }
    }

    /// This program: a path, or a name that is looked for on PATH. It has to be a server.
    pub(crate) fn at(program: &str) -> Result<Self> {
        // Tests run in other folders than the one where this path was typed.
        let is_path = program.contains('/');
        let program = if is_path { std::path::absolute(program)?.display().to_string() } else { program.to_string() };
        let server = Self { chosen: Some(program) };
        server.version()?;
        Ok(server)
    }

    /// What it says about itself: `Redis server v=7.0.15`.
    pub(crate) fn version(&self) -> Result<String> {
        let program = self.chosen.as_deref().unwrap_or("redis-server");
        // Through `env`, because a path may have blanks in it.
        let ask = Invocation::new("env").with_args(&[program, "--version"]);
        let said = ask.read(Path::new(".")).with_context(|| format!("{program:?} is not a server that runs here"))?;
        match said.split_once(" sha=").filter(|(version, _)| version.contains(" server v=")) {
            Some((version, _)) => Ok(version.to_string()),
            None => {
                bail!("{program:?} is not a Redis or Valkey server: asked for its version it said {:?}", said.trim())
            }
        }
    }

    /// The same command, told to use this server.
    pub(crate) fn tell(&self, command: Invocation) -> Invocation {
        match &self.chosen {
            Some(program) => command.with_variable(PROGRAM, program),
            None => command,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_redis_server_is_refused() {
        let nowhere = format!("{:#}", Server::at("no/such/server").unwrap_err());
        assert!(nowhere.contains("/no/such/server"), "{nowhere}");
        let other = format!("{:#}", Server::at("echo").unwrap_err());
        assert!(other.contains("not a Redis or Valkey server"), "{other}");
    }

    #[test]
    fn a_repeated_step_uses_the_same_server() {
        let tests = || Invocation::new("cargo test");
        assert_eq!(Server::default().tell(tests()), tests());
        let server = Server { chosen: Some("/opt/valkey/bin/valkey-server".to_string()) };
        let told = server.tell(tests()).to_string();
        assert_eq!(told, "LOCKFAST_REDIS_SERVER=/opt/valkey/bin/valkey-server cargo test");
    }

    #[test]
    fn a_server_says_which_version_it_is() {
        assert!(Server::default().version().unwrap().contains(" server v="));
    }
}
