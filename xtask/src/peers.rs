//! Installs the lock libraries of other projects with which `foreign` shares keys, by the package managers of their
//! languages.
//!
//! The versions are pinned in `foreign/drivers/`; the packages are installed below `target/`, where no other program finds
//! them. The pinning files are copied beside the packages, and an empty file marks a complete installation: so the next run
//! knows whether there is nothing to do, or whether an interrupted or outdated installation has to be repeated.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::invocation::Invocation;

/// A package manager: the files that pin its packages, and the command that installs them in the current folder.
struct PackageManager {
    language: &'static str,
    pinning_files: &'static [&'static str],
    install: &'static str,
}

const PACKAGE_MANAGERS: &[PackageManager] = &[
    PackageManager {
        language: "python",
        pinning_files: &["requirements.txt"],
        install: "python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
                  --target packages --requirement requirements.txt",
    },
    PackageManager {
        language: "node",
        pinning_files: &["package.json", "package-lock.json"],
        install: "npm ci --silent --ignore-scripts --no-audit --no-fund",
    },
];

/// One installation that is missing or outdated.
pub(crate) struct Installation {
    manager: &'static PackageManager,
    folder: PathBuf,
    /// Name and text of each file in `pinning_files`.
    files: Vec<(&'static str, String)>,
}

/// The name of a file that exists in a folder exactly when all packages that the folder's other files pin are installed.
const COMPLETE_FILE: &str = "complete";

/// The installations that have to be done.
pub(crate) fn missing(root: &Path) -> Result<Vec<Installation>> {
    let mut installations = all_installations(root)?;
    installations.retain(|installation| !installation.is_complete());
    Ok(installations)
}

/// The installation of each package manager, whether it is complete or not.
fn all_installations(root: &Path) -> Result<Vec<Installation>> {
    let installation = |manager: &'static PackageManager| {
        let read = |name: &'static str| {
            let path = root.join("foreign/drivers").join(name);
            let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            Ok((name, text))
        };
        let files = manager.pinning_files.iter().map(|name| read(name)).collect::<Result<Vec<_>>>()?;
        Ok(Installation { manager, folder: root.join("target/peers").join(manager.language), files })
    };
    PACKAGE_MANAGERS.iter().map(installation).collect()
}

impl Installation {
    fn is_complete(&self) -> bool {
        let is_same =
            |(name, text): &(&str, String)| fs::read_to_string(self.folder.join(name)).is_ok_and(|it| it == *text);
        self.folder.join(COMPLETE_FILE).exists() && self.files.iter().all(is_same)
    }

    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let folder = self.folder.strip_prefix(root).unwrap_or(&self.folder).display();
        self.prepare().with_context(|| format!("could not prepare {folder}"))?;
        let install = Invocation::new(self.manager.install);
        println!("setup: running `{install}` in {folder}");
        install.run(&self.folder)?;
        fs::write(self.folder.join(COMPLETE_FILE), "").with_context(|| format!("could not write in {folder}"))
    }

    /// Makes a folder with only the pinning files in it, so that the packages of an earlier version are not mixed with these.
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

    /// An installation of Python packages that `text` pins.
    fn python_installation(text: &str, folder: &Path) -> Installation {
        Installation {
            manager: &PACKAGE_MANAGERS[0],
            folder: folder.join("python"),
            files: vec![("requirements.txt", text.to_string())],
        }
    }

    #[test]
    fn an_interrupted_or_outdated_installation_is_repeated() {
        let folder = std::env::temp_dir().join(format!("lockfast-xtask-peers-{}", std::process::id()));
        let (first, next) = (python_installation("redis==1\n", &folder), python_installation("redis==2\n", &folder));
        assert!(!first.is_complete());
        first.prepare().unwrap();
        assert!(!first.is_complete(), "nothing was installed yet");
        fs::write(first.folder.join(COMPLETE_FILE), "").unwrap();
        assert!(first.is_complete());
        assert!(!next.is_complete(), "another version is asked for");
        next.prepare().unwrap();
        assert!(!next.is_complete() && !first.is_complete());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn versions_are_pinned_and_registries_are_not() {
        let [python, node] =
            <[Installation; 2]>::try_from(all_installations(&crate::root()).ok().unwrap()).ok().unwrap();
        let [(_, requirements)] = python.files.as_slice() else { panic!("one file") };
        assert!(requirements.lines().all(|line| line.contains("==")), "{requirements}");
        // Each machine uses its own registry, so the lock file has no addresses: `npm config set
        // omit-lockfile-registry-resolved true`.
        let [(_, _), (_, lock)] = node.files.as_slice() else { panic!("two files") };
        assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""), "{lock}");
    }
}
