//! Which Redis server the tests start: the `redis-server` on PATH, or one that `--redis` or the environment names.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::invocation::Invocation;

/// The environment variable that names the server program. The crate `servers`, which starts the servers, reads it too.
const PROGRAM_VAR: &str = "LOCKFAST_REDIS_SERVER";

/// A server program; the default is the one on PATH.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// `None` for the `redis-server` on PATH.
    program: Option<String>,
}

impl Server {
    /// The program that the environment names, if it names one.
    pub(crate) fn from_env() -> Result<Self> {
        match std::env::var(PROGRAM_VAR) {
            Ok(program) => Self::at(&program).with_context(|| format!("the environment says {PROGRAM_VAR}={program}")),
            Err(_) => Ok(Self::default()),
        }
    }

    /// The server `program`: a path, or a name that is looked up on PATH. Fails if the program is no server.
    pub(crate) fn at(program: &str) -> Result<Self> {
        // Tests run in other folders, so a relative path would not be found.
        let is_path = program.contains('/');
        let program = if is_path { std::path::absolute(program)?.display().to_string() } else { program.to_string() };
        let server = Self { program: Some(program) };
        server.version()?;
        Ok(server)
    }

    /// The version that it prints, like `Redis server v=7.0.15`.
    pub(crate) fn version(&self) -> Result<String> {
        let program = self.program.as_deref().unwrap_or("redis-server");
        // Through `env`, because a path may contain blanks.
        let print_version = Invocation::new("env").with_args(&[program, "--version"]);
        let output = print_version
            .read(Path::new("."))
            .with_context(|| format!("{program:?} is not a server that runs here"))?;
        match output.split_once(" sha=").filter(|(version, _)| version.contains(" server v=")) {
            Some((version, _)) => Ok(version.to_string()),
            None => {
                bail!("{program:?} is not a Redis or Valkey server: its `--version` prints {:?}", output.trim())
            }
        }
    }

    /// The same command with the variable that names this server.
    pub(crate) fn configure(&self, command: Invocation) -> Invocation {
        match &self.program {
            Some(program) => command.with_variable(PROGRAM_VAR, program),
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
        assert_eq!(Server::default().configure(tests()), tests());
        let server = Server { program: Some("/opt/valkey/bin/valkey-server".to_string()) };
        let command = server.configure(tests()).to_string();
        assert_eq!(command, "LOCKFAST_REDIS_SERVER=/opt/valkey/bin/valkey-server cargo test");
    }

    #[test]
    fn a_server_says_which_version_it_is() {
        assert!(Server::default().version().unwrap().contains(" server v="));
    }
}
