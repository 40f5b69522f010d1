//! The runtime directory beside the database. Each process that has the store open owns two files in it: a *liveness
//! pipe*, by which other processes see that it is dead, and a socket, on which it receives datagrams.
//!
//! The process keeps the writing end of its pipe open and never writes. A process that opens the reading end sees end
//! of file as soon as the last writer is gone, and can poll for it; the kernel closes the writing end however the
//! process dies. Children that inherit the descriptor count as part of the process. So there is **one verdict of death:
//! the end of a pipe that belongs to this boot**. A pipe or socket that is missing or forbidden, a socket that refuses
//! or is full: each of these means unknown, and the lease decides.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::FdFlags;

use crate::error::{Error, Result};

/// The longest path that fits into the address of a Unix socket (`sun_path`), without the terminating zero.
const MAX_ADDRESS_BYTES: usize = 107;
/// Files of a process that died while it created its endpoint are removed after this long.
const SETUP_GRACE: Duration = Duration::from_secs(60);

/// The id of a process in the runtime directory: random, never used again, and not its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId(pub(super) u64);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What the liveness pipe of a process shows.
#[derive(Debug)]
pub(super) enum Liveness {
    /// The process lives; the descriptor reports end of file when it dies.
    Alive(OwnedFd),
    Dead,
    Unknown,
}

/// The directory in which the processes that share a database file find each other.
#[derive(Debug)]
pub(super) struct RuntimeDir {
    path: PathBuf,
    /// An open descriptor of the directory: reaches a socket whose path is too long for an address.
    handle: OwnedFd,
    /// The user id of the directory's owner.
    owner: u32,
}

impl RuntimeDir {
    pub(super) fn beside(file: &Path) -> Result<Self> {
        let mut path = file.as_os_str().to_owned();
        path.push(".live");
        let path = PathBuf::from(path);
        let failed = |error: io::Error| Error::unavailable(format!("making the directory {}", path.display()), error);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let found = fs::symlink_metadata(&path).map_err(failed)?;
        if !found.is_dir() || found.mode() & 0o077 != 0 {
            return Err(Error::invalid(format!(
                "{} must be a directory that only its owner can use (mode 0700): move it away, or change its mode",
                path.display()
            )));
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self { path, handle, owner: found.uid() })
    }

    /// Whether datagrams from this user are read: from this process's own user, from the owner of the directory, and
    /// from root, which has access to all of it anyway.
    pub(super) fn trusts(&self, user: u32) -> bool {
        user == 0 || user == self.owner || user == rustix::process::geteuid().as_raw()
    }

    fn pipe_of(&self, process: ProcessId) -> PathBuf {
        self.path.join(format!("{process}.life"))
    }

    fn socket_of(&self, process: ProcessId) -> PathBuf {
        self.path.join(format!("{process}.sock"))
    }

    /// A path to the socket that fits into an address, however deep the directory is.
    pub(super) fn address_of(&self, process: ProcessId) -> PathBuf {
        let direct = self.socket_of(process);
        if direct.as_os_str().len() <= MAX_ADDRESS_BYTES {
            return direct;
        }
        PathBuf::from(format!("/proc/self/fd/{}/{process}.sock", self.handle.as_raw_fd()))
    }

    /// Opens the liveness pipe of a process and checks it for its end.
    pub(super) fn liveness_of(&self, process: ProcessId) -> Liveness {
        match open_pipe(&self.pipe_of(process), OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(pipe) if has_ended(&pipe) => Liveness::Dead,
            Ok(pipe) => Liveness::Alive(pipe),
            Err(_) => Liveness::Unknown,
        }
    }

    /// Removes the files of a process. For a dead process only after its claims are removed: other processes see by its
    /// pipe that it is dead.
    pub(super) fn remove_files_of(&self, process: ProcessId) {
        let _ = fs::remove_file(self.socket_of(process));
        let _ = fs::remove_file(self.pipe_of(process));
    }

    /// All processes here that are dead. Their pipes stay until their claims are removed: without the pipe no process
    /// could see the death. Files of processes that died while they created their endpoint are removed.
    pub(super) fn dead_processes(&self) -> Vec<ProcessId> {
        let mut dead_processes = Vec::new();
        let Ok(files) = fs::read_dir(&self.path) else { return dead_processes };
        for file in files.flatten() {
            let name = file.file_name();
            let Some((id, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Ok(id) = u64::from_str_radix(id, 16) else { continue };
            let process = ProcessId(id);
            match kind {
                "life" if matches!(self.liveness_of(process), Liveness::Dead) => dead_processes.push(process),
                "new" | "sock" if !self.pipe_of(process).exists() && is_old(&file) => {
                    let _ = fs::remove_file(file.path());
                }
                _ => {}
            }
        }
        dead_processes
    }
}

/// Whether the last writer is gone. No process ever writes, so a read finds either the end or nothing.
pub(super) fn has_ended(pipe: &OwnedFd) -> bool {
    matches!(rustix::io::read(pipe, &mut [0u8; 1]), Ok(0))
}

fn open_pipe(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let pipe = rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&pipe)?.st_mode);
    if kind == FileType::Fifo { Ok(pipe) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn is_old(file: &fs::DirEntry) -> bool {
    let modified = file.metadata().and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > SETUP_GRACE))
}

/// This process's own liveness pipe and socket in the runtime directory.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) process: ProcessId,
    pub(super) dir: RuntimeDir,
    pub(super) socket: UnixDatagram,
    /// The writing end of the liveness pipe: open for as long as this process, or a child that counts as part of it,
    /// lives.
    _liveness_pipe: OwnedFd,
}

impl Endpoint {
    /// Creates the pipe and the socket. With `counts_children`, processes started from now on count as part of this
    /// one: they inherit the writing end of the pipe.
    pub(super) fn create(dir: RuntimeDir, counts_children: bool) -> Result<Self> {
        let process = ProcessId(random_id()?);
        let failed = |error: io::Error| {
            Error::unavailable(format!("creating a socket and a pipe in {}", dir.path.display()), error)
        };
        let (socket, pipe) = create_files(&dir, process).map_err(failed)?;
        if counts_children {
            rustix::io::fcntl_setfd(&pipe, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        }
        Ok(Self { process, dir, socket, _liveness_pipe: pipe })
    }
}

fn create_files(dir: &RuntimeDir, process: ProcessId) -> io::Result<(UnixDatagram, OwnedFd)> {
    let socket = UnixDatagram::bind(dir.address_of(process))?;
    socket.set_nonblocking(true)?;
    rustix::net::sockopt::set_socket_passcred(socket.as_fd(), true)?;
    // The mode of the directory decides which users can connect. A socket of root must be usable by the directory's
    // owner too.
    let socket_file = rustix::fs::openat(
        &dir.handle,
        format!("{process}.sock"),
        OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )?;
    if FileType::from_raw_mode(rustix::fs::fstat(&socket_file)?.st_mode) != FileType::Socket {
        // The directory's owner could put a symbolic link there, by which root would make any file writable for all
        // users.
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fs::set_permissions(format!("/proc/self/fd/{}", socket_file.as_raw_fd()), Permissions::from_mode(0o666))?;
    // Order matters: the pipe gets its final name only when its writing end is open. Found earlier, it would look like
    // a death.
    let temporary_path = dir.path.join(format!("{process}.new"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &temporary_path, Mode::from_raw_mode(0o600))?;
    // A pipe cannot be opened for writing without a reader.
    let reader = open_pipe(&temporary_path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    rustix::fs::fchmod(&reader, Mode::from_raw_mode(0o644))?;
    let pipe = open_pipe(&temporary_path, OFlags::WRONLY | OFlags::NONBLOCK)?;
    drop(reader);
    fs::rename(&temporary_path, dir.pipe_of(process))?;
    Ok((socket, pipe))
}

fn random_id() -> Result<u64> {
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(|error| Error::unavailable("drawing an id from the operating system", error))?;
    Ok(u64::from_le_bytes(id))
}
