//! A command that is shown exactly as it is run, so that a person can repeat it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A program with its arguments and the environment variables that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    variables: Vec<(String, String)>,
    program: String,
    args: Vec<String>,
}

impl Invocation {
    /// The words of `line`, split at blanks; for words that contain blanks there is [`with_args`](Self::with_args).
    pub(crate) fn new(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_string);
        Self { variables: Vec::new(), program: words.next().unwrap_or_default(), args: words.collect() }
    }

    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_string(), value.to_string()));
        self
    }

    pub(crate) fn with_args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Runs it in `folder`; its output goes straight to the terminal.
    pub(crate) fn run(&self, folder: &Path) -> Result<()> {
        let status = self.command(folder).status().with_context(|| format!("could not start `{self}`"))?;
        if !status.success() {
            bail!("`{self}` failed with {status}");
        }
        Ok(())
    }

    /// Runs it in `folder`, prints its standard output and standard error as they come, and returns both in the order in which
    /// they were written.
    pub(crate) fn run_and_read(&self, folder: &Path) -> Result<String> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = self.command(folder);
        let started = command.stdout(writer.try_clone()?).stderr(writer).spawn();
        let mut child = started.with_context(|| format!("could not start `{self}`"))?;
        // Order matters: drop our write ends, so that the pipe ends with the program.
        drop(command);
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let read = BufReader::new(reader).split(b'\n').map_while(std::io::Result::ok);
            read.for_each(|bytes| drop(sender.send(String::from_utf8_lossy(&bytes).into_owned())));
        });
        let (mut output, mut ended) = (String::new(), None);
        loop {
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => {
                    println!("{line}");
                    output.push_str(&line);
                    output.push('\n');
                }
                // A process that it left running may keep the pipe open for ever.
                Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
                Err(RecvTimeoutError::Timeout) => ended = child.try_wait()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{self}` failed with {status}");
        }
        Ok(output)
    }

    /// Runs it in `folder`, prints its standard output as it comes, and returns whether it succeeded and that output.
    pub(crate) fn run_and_read_stdout(&self, folder: &Path) -> Result<(bool, String)> {
        let started = self.command(folder).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("could not start `{self}`"))?;
        let mut output = String::new();
        for line in BufReader::new(child.stdout.take().expect("standard output is piped")).lines() {
            let line = line.with_context(|| format!("`{self}` printed something that is not UTF-8"))?;
            println!("{line}");
            output.push_str(&line);
            output.push('\n');
        }
        Ok((child.wait()?.success(), output))
    }

    /// Runs it in `folder` and returns its standard output, without printing anything.
    pub(crate) fn read(&self, folder: &Path) -> Result<String> {
        let output = self.command(folder).output().with_context(|| format!("could not start `{self}`"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("`{self}` failed with {}: {}", output.status, stderr.trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` printed something that is not UTF-8"))
    }

    /// Whether it starts and succeeds; used to find out whether a program is installed.
    pub(crate) fn succeeds(&self, folder: &Path) -> bool {
        self.read(folder).is_ok()
    }

    fn command(&self, folder: &Path) -> Command {
        // Under `cargo run` this is the cargo that built xtask, also when it is not the first one on PATH.
        let cargo = std::env::var_os("CARGO").filter(|_| self.program == "cargo");
        let mut command = Command::new(cargo.unwrap_or_else(|| self.program.clone().into()));
        command.args(&self.args).envs(self.variables.iter().cloned()).current_dir(folder);
        command
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// Quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted_into_a_shell() {
        let doc = Invocation::new("cargo doc --no-deps").with_variable("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(doc.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
        assert_eq!(Invocation::new("echo").with_args(&["it's", ""]).to_string(), r"echo 'it'\''s' ''");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = Invocation::new("no-such-program-here").run(Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
    }
}
