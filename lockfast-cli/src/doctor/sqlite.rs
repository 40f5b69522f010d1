//! Checks of a file of locks: its path, its permissions, its journal and its file system. Only asks the file system about the
//! files and never opens one: closing it again would drop the locks that SQLite has on it in this process.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockfast::Sqlite;

use super::Check;

/// The permission to write, of the group and of all other users.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit, users can replace only their own files.
const STICKY: u32 = 0o1000;

/// `rest` is the URL after `sqlite:`.
pub(super) fn checks(rest: &str) -> Vec<Check> {
    let path = match rest.strip_prefix("//").unwrap_or(rest) {
        "" => Sqlite::default_path(),
        path => Ok(PathBuf::from(path)),
    };
    match path {
        Ok(path) => file_checks(&path),
        Err(error) => vec![Check::wrong("file", error.to_string())],
    }
}

fn file_checks(path: &Path) -> Vec<Check> {
    let shown = crate::out::escape_controls(&path.display().to_string());
    let file = match std::fs::metadata(path) {
        Ok(file) => file,
        Err(error) => return vec![Check::wrong("file", format!("{shown}: {error}"))],
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut checks = vec![
        Check::fine("file", format!("{shown}, {} kB", file.len().div_ceil(1024))),
        journal(path),
        file_permissions(&file),
        folder_permissions(folder),
    ];
    checks.extend(file_system(folder));
    checks
}

/// The write-ahead log exists as long as a process has the file open, as this one has.
fn journal(path: &Path) -> Check {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match std::fs::metadata(PathBuf::from(log)) {
        Ok(log) => Check::fine("journal", format!("write-ahead log, {} kB", log.len().div_ceil(1024))),
        Err(_) => Check::wrong(
            "journal",
            "no write-ahead log beside the file: every lock waits for the disk; is something copying or changing the file?",
        ),
    }
}

fn file_permissions(file: &Metadata) -> Check {
    let mode = file.permissions().mode() & 0o777;
    match mode & WRITABLE_BY_OTHERS {
        0 => Check::fine("file mode", format!("{mode:04o}, owner {}", file.uid())),
        _ => Check::note("file mode", format!("{mode:04o}: others may write it, and so take and break every lock")),
    }
}

fn folder_permissions(folder: &Path) -> Check {
    let shown = crate::out::escape_controls(&folder.display().to_string());
    match std::fs::metadata(folder).map(|folder| folder.permissions().mode() & 0o7777) {
        Ok(mode) if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 => Check::wrong(
            "directory",
            format!("{shown} has mode {mode:04o}: others can replace the file; chmod go-w, or choose another place"),
        ),
        Ok(mode) => Check::fine("directory", format!("{shown} has mode {mode:04o}")),
        Err(error) => Check::wrong("directory", format!("{shown}: {error}")),
    }
}

/// Common file systems, by the number that Linux gives them.
const FILE_SYSTEMS: [(u64, &str); 8] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (TMPFS, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];
const TMPFS: u64 = 0x0102_1994;

/// Network file systems are not listed: the store refuses to be opened on one.
fn file_system(folder: &Path) -> Option<Check> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type as u64;
    let name = FILE_SYSTEMS.iter().find(|(number, _)| *number == kind).map_or("another kind", |(_, name)| name);
    Some(match kind {
        TMPFS => Check::note(
            "file system",
            "tmpfs: the file is gone after a restart of the machine, and fences begin anew by the clock",
        ),
        _ => Check::fine("file system", name),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict;

    use super::*;

    #[test]
    fn a_directory_writable_by_others_is_wrong_unless_sticky() {
        let folder = std::env::temp_dir().join(format!("lockfast-doctor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let verdict = |mode| {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            folder_permissions(&folder).verdict
        };
        let found = [verdict(0o700), verdict(0o777), verdict(0o1777)];
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [Verdict::Fine, Verdict::Wrong, Verdict::Fine]);
    }

    #[test]
    fn a_missing_file_and_a_missing_write_ahead_log_are_wrong() {
        let path = std::env::temp_dir().join(format!("lockfast-doctor-{}.db", std::process::id()));
        assert!(matches!(&file_checks(&path)[..], [Check { name: "file", verdict: Verdict::Wrong, .. }]));
        std::fs::write(&path, "").unwrap();
        let found = file_checks(&path);
        std::fs::remove_file(&path).unwrap();
        let wrong: Vec<_> = found.iter().filter(|it| it.verdict == Verdict::Wrong).map(|it| it.name).collect();
        assert_eq!(wrong, ["journal"]);
    }
}
