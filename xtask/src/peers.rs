//! The lock libraries of other people that `foreign` shares keys with, in their languages' own package managers.
//!
//! What is wanted is pinned in `foreign/drivers/`; it is installed below `target/`, where nothing else can see it. A copy
//! of what was asked for is laid beside it when the installation is complete: that copy is how the next run knows that
//! there is nothing to do, and that an interrupted one has to begin again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::invocation::Invocation;

/// A package manager, the files that say what to install, and the command that does it in the folder of its own.
struct Kind {
    language: &'static str,
    asked_for: &'static [&'static str],
    install: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        language: "python",
        asked_for: &["requirements.txt"],
        install: "python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
                  --target packages --requirement requirements.txt",
    },
    Kind {
        language: "node",
        asked_for: &["package.json", "package-lock.json"],
        install: "npm ci --silent --ignore-scripts --no-audit --no-fund",
    },
];

/// One installation that is not there, or not as it is asked for now.
pub(crate) struct Installation {
    kind: &'static Kind,
    folder: PathBuf,
    /// Name and text of each file in `asked_for`.
    files: Vec<(&'static str, String)>,
}

/// Stands in a folder when, and only when, all that its files ask for is installed.
const COMPLETE: &str = "complete";

/// What has to be installed.
pub(crate) fn missing(root: &Path) -> Result<Vec<Installation>> {
    let mut wanted = wanted(root)?;
    wanted.retain(|installation| !installation.is_complete());
    Ok(wanted)
}

fn wanted(root: &Path) -> Result<Vec<Installation>> {
    let installation = |kind: &'static Kind| {
        let read = |name: &'static str| {
            let path = root.join("foreign/drivers").join(name);
            let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            Ok((name, text))
        };
        let files = kind.asked_for.iter().map(|name| read(name)).collect::<Result<Vec<_>>>()?;
        Ok(Installation { kind, folder: root.join("target/peers").join(kind.language), files })
    };
    KINDS.iter().map(installation).collect()
}

impl Installation {
    fn is_complete(&self) -> bool {
        let is_same =
            |(name, text): &(&str, String)| fs::read_to_string(self.folder.join(name)).is_ok_and(|it| it == *text);
        self.folder.join(COMPLETE).exists() && self.files.iter().all(is_same)
    }

    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let folder = self.folder.strip_prefix(root).unwrap_or(&self.folder).display();
        self.prepare().with_context(|| format!("could not prepare {folder}"))?;
        let install = Invocation::new(self.kind.install);
        println!("setup: running `{install}` in {folder}");
        install.run(&self.folder)?;
        fs::write(self.folder.join(COMPLETE), "").with_context(|| format!("could not write in {folder}"))
    }

    /// An empty folder with the files in it: what an earlier version installed is not mixed with this one.
    fn prepare(&self) -> std::io::Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir_all(&self.folder)?;
        self.files.iter().try_for_each(|(name, text)| fs::write(self.folder.join(name), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks_for(text: &str, folder: &Path) -> Installation {
        Installation {
            kind: &KINDS[0],
            folder: folder.join("python"),
            files: vec![("requirements.txt", text.to_string())],
        }
    }

    #[test]
    fn an_interrupted_or_outdated_installation_is_repeated() {
        let folder = std::env::temp_dir().join(format!("lockfast-xtask-peers-{}", std::process::id()));
        let (first, next) = (asks_for("redis==1\n", &folder), asks_for("redis==2\n", &folder));
        assert!(!first.is_complete());
        first.prepare().unwrap();
        assert!(!first.is_complete(), "nothing was installed yet");
        fs::write(first.folder.join(COMPLETE), "").unwrap();
        assert!(first.is_complete());
        assert!(!next.is_complete(), "another version is asked for");
        next.prepare().unwrap();
        assert!(!next.is_complete() && !first.is_complete());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn versions_are_pinned_and_registries_are_not() {
        let [python, node] = <[Installation; 2]>::try_from(wanted(&crate::root()).ok().unwrap()).ok().unwrap();
        let [(_, requirements)] = python.files.as_slice() else { panic!("one file") };
        assert!(requirements.lines().all(|line| line.contains("==")), "{requirements}");
        // With `npm config set omit-lockfile-registry-resolved true` npm leaves the addresses out.
        let [(_, _), (_, lock)] = node.files.as_slice() else { panic!("two files") };
        assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""), "{lock}");
    }
}
