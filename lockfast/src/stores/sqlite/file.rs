//! The database file: how it is opened, which boot its moments belong to, and errors of files as messages to act on.
//!
//! Only SQLite may open the database files: closing any other descriptor of them would drop the POSIX locks by which
//! processes exclude each other.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::store::LONGEST_TTL;

use super::boot_time::BootTime;

/// "lock" in ASCII: the application id in the header of every file of this store.
const APPLICATION_ID: i32 = 0x6c6f_636b;
/// The version of the stored format (`PRAGMA user_version`). Raised by every change of it.
const FORMAT_VERSION: i32 = 2;
/// How long a transaction waits for transactions of other processes. Each takes microseconds, unless its process is
/// stopped.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The `statfs` magic numbers of file systems whose locks, memory maps and named pipes do not reach all machines that
/// see the file.
const NETWORK_FILE_SYSTEMS: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x7375_7245, "Coda"),
];

#[derive(Debug)]
pub(super) struct File {
    pub(super) connection: Connection,
    path: PathBuf,
    /// Device and inode of the open file: it may be removed while it is open, and another file may take its name.
    identity: (u64, u64),
    time: BootTime,
}

impl File {
    pub(super) fn open(path: &Path, time: &BootTime) -> Result<Self> {
        refuse_network_file_systems(path)?;
        let is_new = !path.exists();
        let connection = connect(path).map_err(|error| explain("opening", path, &error))?;
        if is_new {
            // Write access to the file is access to every lock. The files that SQLite creates beside it get the same
            // mode.
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))
                .map_err(|error| Error::unavailable(opening(path), error))?;
        }
        let found = fs::metadata(path).map_err(|error| Error::unavailable(opening(path), error))?;
        let identity = (found.dev(), found.ino());
        let mut file = Self { connection, path: path.to_owned(), identity, time: time.clone() };
        file.prepare()?;
        Ok(file)
    }

    pub(super) fn boot_id(&self) -> &str {
        self.time.id()
    }

    /// Whether the path still leads to the open file. If not, no other process sees what is written to it.
    pub(super) fn is_current(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    fn prepare(&mut self) -> Result<()> {
        let path = self.path.clone();
        let failed = |error: rusqlite::Error| explain("opening", &path, &error);
        // Both pragmas in one transaction: another process may be creating the file at this moment.
        let (application, format) = retry_while_busy(|| {
            let transaction = self.connection.unchecked_transaction()?;
            let ids = read_ids(&transaction)?;
            transaction.commit().map(|()| ids)
        })
        .map_err(failed)?;
        if ![(APPLICATION_ID, FORMAT_VERSION), (0, 0)].contains(&(application, format)) {
            return Err(self.foreign_file_error(application, format));
        }
        // Has an effect only on a new file. Every transaction writes whole pages, and most rows have a few hundred
        // bytes.
        self.connection.pragma_update(None, "page_size", 2048).map_err(failed)?;
        let mode = retry_while_busy(|| {
            self.connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
        });
        if mode.map_err(failed)? != "wal" {
            return Err(Error::unsupported(format!(
                "{}: this file system cannot share memory between processes; keep the locks on a local disk",
                self.path.display()
            )));
        }
        // A power cut may undo the last transactions, never half of one. Claims end with the boot anyway, tickets are
        // raised at the next boot, and a transaction that seals is made durable (`Durable::Yes`).
        retry_while_busy(|| self.connection.pragma_update(None, "synchronous", "NORMAL")).map_err(failed)?;
        // More than there are statements: each is prepared once.
        self.connection.set_prepared_statement_cache_capacity(64);
        self.create_or_adopt()
    }

    /// Creates the schema if there is none, and makes the present boot the one whose moments count.
    fn create_or_adopt(&mut self) -> Result<()> {
        let path = self.path.clone();
        let failed = |error: rusqlite::Error| explain("opening", &path, &error);
        let wall = self.wall_offset();
        let now = nanos(self.time.now().as_nanos());
        let transaction =
            retry_while_busy(|| Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate));
        let transaction = transaction.map_err(failed)?;
        match read_ids(&transaction).map_err(failed)? {
            (APPLICATION_ID, FORMAT_VERSION) => {
                let boot: String =
                    transaction.query_row("SELECT boot FROM state", [], |row| row.get(0)).map_err(failed)?;
                if boot != self.boot_id() {
                    move_to_boot(&transaction, self.boot_id(), wall, now).map_err(failed)?;
                }
                // The file may be a restored copy that lacks the last tickets. And the time of day may have been
                // corrected since this boot was first seen.
                let raise = "UPDATE state SET ticket = max(ticket, ?1), wall = ?2";
                transaction.execute(raise, (min_ticket_at(wall + now), wall)).map_err(failed)?;
            }
            (0, 0) => {
                let tables: i64 = transaction
                    .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
                    .map_err(failed)?;
                if tables > 0 {
                    drop(transaction);
                    return Err(self.foreign_file_error(0, 0));
                }
                transaction.execute_batch(include_str!("schema.sql")).map_err(failed)?;
                let first = "INSERT INTO state (id, boot, wall, ticket, next_end) VALUES (1, ?1, ?2, ?3, ?4)";
                transaction
                    .execute(first, (self.boot_id(), wall, min_ticket_at(wall + now), i64::MAX))
                    .map_err(failed)?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
                transaction.pragma_update(None, "user_version", FORMAT_VERSION).map_err(failed)?;
            }
            (application, format) => {
                drop(transaction);
                return Err(self.foreign_file_error(application, format));
            }
        }
        transaction.commit().map_err(failed)
    }

    /// What to add to a moment to get nanoseconds since 1970.
    fn wall_offset(&self) -> i64 {
        let wall = i64::try_from(self.time.wall().as_nanos()).unwrap_or(i64::MAX / 2);
        wall - nanos(self.time.now().as_nanos())
    }

    fn foreign_file_error(&self, application: i32, format: i32) -> Error {
        let path = self.path.display();
        if application == APPLICATION_ID && format < FORMAT_VERSION {
            Error::unsupported(format!(
                "{path} was written by an older lockfast (format {format}; this one knows {FORMAT_VERSION}): move it away \
                 while no process uses it, or name another file"
            ))
        } else if application == APPLICATION_ID {
            Error::unsupported(format!(
                "{path} was written by a newer lockfast (format {format}; this one knows {FORMAT_VERSION}): update this one, \
                 or name another file"
            ))
        } else {
            Error::invalid(format!("{path} is a database of some other program: name another file"))
        }
    }
}

/// Repeats `step` for up to [`PATIENCE`] while another process has the file locked.
fn retry_while_busy<T>(mut step: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let clock = Clock::boot();
    let until = clock.now() + PATIENCE;
    loop {
        match step() {
            Err(error) if is_busy(&error) && clock.now() < until => {
                std::thread::sleep(Duration::from_micros(fastrand::u64(500..5000)));
            }
            done => return done,
        }
    }
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The application id and the format version of the file.
fn read_ids(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let read = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((read("application_id")?, read("user_version")?))
}

/// Moves the file to a new boot of the machine. The processes of the boot before are dead, and so are their claims.
/// Detached and lingering claims that hold, and seals, live on by the time of day: their moments are shifted to the new
/// boot. `wall` is what to add to a moment of the new boot to get nanoseconds since 1970.
fn move_to_boot(transaction: &Connection, boot: &str, wall: i64, now: i64) -> rusqlite::Result<()> {
    let old_wall: i64 = transaction.query_row("SELECT wall FROM state", [], |row| row.get(0))?;
    let shift = old_wall - wall;
    // A time of day that was set wrong must not extend a lease beyond the longest there is.
    let longest = nanos(u64::try_from(LONGEST_TTL.as_nanos()).unwrap_or(u64::MAX));
    // Kept are holders with flag 1 or 2 (detached, lingers). A waiter lived with its process, so it is deleted. The
    // remaining claims hold already, so no claim has to be granted.
    transaction.execute_batch(
        "DELETE FROM watchers; DELETE FROM tombstones; DELETE FROM entries WHERE flags & 3 = 0 OR missing > 0",
    )?;
    transaction
        .execute("UPDATE entries SET expires = min(expires + ?1, ?2), since = since + ?1", (shift, now + longest))?;
    transaction.execute("UPDATE seals SET until = until + ?1", [shift])?;
    transaction.execute("UPDATE state SET boot = ?1, wall = ?2, next_end = ?3", (boot, wall, now))?;
    Ok(())
}

/// The canonical path of a file, independent of links and of the working directory: the runtime directory is beside it,
/// and all processes must find the same one.
pub(super) fn real_path(path: &Path) -> Result<PathBuf> {
    let failed = |error: io::Error| Error::unavailable(opening(path), error);
    match (fs::canonicalize(path), path.file_name()) {
        (Ok(real), _) => Ok(real),
        // The file does not exist yet; its directory does.
        (Err(_), Some(name)) => {
            let absolute = std::path::absolute(path).map_err(failed)?;
            let folder = absolute.parent().unwrap_or(Path::new("/"));
            Ok(fs::canonicalize(folder).map_err(failed)?.join(name))
        }
        (Err(error), None) => Err(failed(error)),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // SQLite itself never waits: it would wait on the caller's thread, with the mutex around the connection held.
    connection.busy_timeout(Duration::ZERO)?;
    // Query plans stay as prepared. Otherwise every new value is a reason to plan again, at half the cost of a verb.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Without this, a short-lived process would spend its last milliseconds on a checkpoint for the next one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Nanoseconds as they are stored: SQLite's integers are signed.
pub(super) fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// The lowest ticket allowed at this time of day: tickets follow it in microseconds.
fn min_ticket_at(wall_nanos: i64) -> i64 {
    (wall_nanos / 1000).max(0)
}

fn refuse_network_file_systems(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = rustix::fs::statfs(folder).map_err(|error| Error::unavailable(opening(path), error))?;
    let magic = found.f_type as u32;
    match network_kind(magic) {
        None => Ok(()),
        Some(kind) => Err(Error::unsupported(format!(
            "{} is on a network file system ({kind}), where machines do not see each other's locks: keep the file on a \
             local disk, or use a store for several machines",
            path.display()
        ))),
    }
}

fn network_kind(magic: u32) -> Option<&'static str> {
    NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == magic).map(|(_, kind)| *kind)
}

/// The file that `sqlite:` without a path means: in the user's state directory, which is created if it is missing.
pub(super) fn default_path(environment: impl Fn(&str) -> Option<String>) -> Result<PathBuf> {
    let absolute_path_in = |variable: &str| environment(variable).filter(|value| value.starts_with('/'));
    let folder = match (absolute_path_in("XDG_STATE_HOME"), absolute_path_in("HOME")) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => Path::new(&home).join(".local/state"),
        (None, None) => {
            return Err(Error::invalid(
                "neither XDG_STATE_HOME nor HOME says where this user's files are: name the file, as in sqlite:/path/locks.db",
            ));
        }
    };
    let folder = folder.join("lockfast");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| Error::unavailable(format!("making the directory {}", folder.display()), error))?;
    Ok(folder.join("locks.db"))
}

fn opening(path: &Path) -> String {
    format!("opening {}", path.display())
}

/// An error of SQLite as a message that says what to do.
pub(super) fn explain(doing: &str, path: &Path, error: &rusqlite::Error) -> Error {
    let shown = path.display();
    let unavailable = |cause: &str| Error::unavailable(format!("{doing} {shown}"), cause);
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            Error::invalid(format!("{shown} is not a database: name another file, or move this one away"))
        }
        Some(ErrorCode::DatabaseCorrupt) => unavailable(
            "the file is damaged; move it and the files beside it away while no process uses them, and a new one is made",
        ),
        Some(ErrorCode::DiskFull) => unavailable("no space is left on the disk"),
        Some(ErrorCode::ReadOnly) => unavailable("the file, its directory or its file system cannot be written to"),
        Some(ErrorCode::CannotOpen) => {
            unavailable("the file or its directory is missing, or may not be used by this user")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable("another process has kept it locked for seconds; perhaps it is stopped")
        }
        _ => Error::unavailable(format!("{doing} {shown}"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_recognized() {
        // The numbers of the kernel's `magic.h`, as `statfs` gives them.
        for shared in [0x6969, 0xff53_4d42, 0x0102_1997, 0x6573_5546] {
            assert!(network_kind(shared).is_some(), "{shared:#x}");
        }
        let (ext4, xfs, btrfs, tmpfs, overlay) = (0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630);
        for local in [ext4, xfs, btrfs, tmpfs, overlay] {
            assert_eq!(network_kind(local), None, "{local:#x}");
        }
    }

    #[test]
    fn the_default_file_is_in_the_users_state_directory() {
        let folder = std::env::temp_dir().join(format!("lockfast-state-{}", std::process::id()));
        let state = folder.join("state");
        let set = |key: &str| (key == "XDG_STATE_HOME").then(|| state.display().to_string());
        assert_eq!(default_path(set).unwrap(), state.join("lockfast/locks.db"));
        let home = |key: &str| (key == "HOME").then(|| folder.display().to_string());
        assert_eq!(default_path(home).unwrap(), folder.join(".local/state/lockfast/locks.db"));
        assert_eq!(fs::metadata(state.join("lockfast")).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(default_path(|_| None).unwrap_err().to_string().contains("sqlite:/path"));
        assert!(default_path(|_| Some("relative".to_owned())).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
