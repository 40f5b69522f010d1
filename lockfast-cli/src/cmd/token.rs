//! Tokens between commands: in a file that only its owner can read, or in a pipe. Never in an argument, which every user of
//! the machine can see.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use lockfast::Token;

use crate::exit::{Exit, Failure};

/// A new, empty file for a token. It is removed again unless it is kept: a token without a lock must not stay.
pub(crate) struct TokenFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl TokenFile {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file, is_kept: false }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::new(
                Exit::No,
                format!(
                    "the token file {} exists already; release its lock (`lockfast release --token-file ..`), or choose \
                     another",
                    path.display()
                ),
            )),
            Err(error) => Err(Failure::new(Exit::No, format!("creating the token file {}: {error}", path.display()))),
        }
    }

    /// Writes the token to disk, so that it survives a power cut.
    pub(crate) fn write(&mut self, token: &Token) -> Result<(), Failure> {
        let written = writeln!(self.file, "{token}").and_then(|()| self.file.sync_all());
        written.map_err(|error| {
            Failure::new(
                Exit::No,
                format!("writing the token file {}: {error}; released the lock", self.path.display()),
            )
        })
    }

    /// The lock is held, so the file has to stay.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The source of a token: the same for `renew` and `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenSource {
    /// Read the token from this file; without it, from standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenSource {
    pub(crate) fn read(&self) -> Result<Token, Failure> {
        let (text, origin) = match &self.token_file {
            Some(file) => (std::fs::read_to_string(file), format!("the file {}", file.display())),
            None if std::io::stdin().is_terminal() => {
                return Err(Failure::new(
                    Exit::Usage,
                    "no token was given; use --token-file FILE, or standard input: echo \"$token\" | lockfast release",
                ));
            }
            None => {
                let mut text = String::new();
                (std::io::stdin().read_to_string(&mut text).map(|_| text), "standard input".to_owned())
            }
        };
        let text =
            text.map_err(|error| Failure::new(Exit::Usage, format!("reading the token from {origin}: {error}")))?;
        text.parse().map_err(|error| Failure::from_error(format!("reading the token from {origin}"), &error))
    }

    /// Removes the file, since its token has no lock any more.
    pub(crate) fn remove(&self) {
        if let Some(file) = &self.token_file
            && let Err(error) = std::fs::remove_file(file)
        {
            tracing::warn!("removing the token file {}: {error}; remove it yourself", file.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use lockfast::Locks;

    use super::*;

    fn path(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lockfast-token-{}-{test}", std::process::id()))
    }

    #[tokio::test]
    async fn a_token_file_is_new_and_readable_by_its_owner_alone() {
        let path = path("mode");
        let token = Locks::in_memory().mutex("a").detached().lock().await.unwrap().into_token().await.unwrap();
        let mut file = TokenFile::create(&path).unwrap();
        file.write(&token).unwrap();
        file.keep();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(TokenFile::create(&path).is_err(), "never over another token");
        let source = TokenSource { token_file: Some(path.clone()) };
        assert_eq!(source.read().unwrap().owner(), token.owner());
        source.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_token_file_that_is_not_kept_is_removed() {
        let path = path("unused");
        drop(TokenFile::create(&path).unwrap());
        assert!(!path.exists());
    }
}
