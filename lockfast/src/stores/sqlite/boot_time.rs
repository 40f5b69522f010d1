//! The clock of the moments in the file: the machine's clock since its boot, as the initial time namespace reads it.
//!
//! A process in another time namespace reads the same clock with an offset (time_namespaces(7)), under the same boot
//! id. Compared with the moments of other processes, its own would end leases too early or too late. So the offset is
//! subtracted before a moment is written to the file or compared with one. The offset is constant: a process with
//! threads cannot move to another time namespace.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub(super) struct BootTime {
    clock: Clock,
    /// By how many nanoseconds this process's clock is ahead of the initial namespace's.
    ahead_nanos: i64,
    /// The boot id.
    id: String,
}

impl BootTime {
    pub(super) fn of(clock: Clock) -> Result<Self> {
        if clock.is_manual() {
            return Ok(Self { clock, ahead_nanos: 0, id: "manual".to_owned() });
        }
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let id = id.map_err(|error| Error::unavailable("reading this machine's boot id", error))?;
        Ok(Self { clock, ahead_nanos: clock_offset_of(Path::new("/proc/self"))?, id: id.trim().to_owned() })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn now(&self) -> Moment {
        Moment::from_nanos(self.clock.now().as_nanos().saturating_add_signed(-self.ahead_nanos))
    }

    /// The time of day, as a span since 1970.
    pub(super) fn wall(&self) -> Duration {
        self.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The clock offset, in nanoseconds, of the process with this directory in `/proc`.
///
/// `timens_offsets` describes the namespace of the process's children. It counts only if that is the process's own
/// namespace.
fn clock_offset_of(process: &Path) -> Result<i64> {
    let failed = |what: &str, cause: &dyn std::fmt::Display| {
        Error::unavailable(
            format!("comparing this process's clock with the machine's ({})", process.join(what).display()),
            format!("{cause}; processes in other time namespaces could end each other's locks"),
        )
    };
    let namespaces = process.join("ns");
    let own = match fs::read_link(namespaces.join("time")) {
        Ok(own) => own,
        // A kernel without time namespaces still lists the other kinds.
        Err(error) if error.kind() == io::ErrorKind::NotFound && namespaces.is_dir() => return Ok(0),
        Err(error) => return Err(failed("ns/time", &error)),
    };
    let of_children = fs::read_link(namespaces.join("time_for_children"));
    if of_children.map_err(|error| failed("ns/time_for_children", &error))? != own {
        let cause = "its children are in another time namespace than the process, so its own offset cannot be known";
        return Err(failed("ns/time_for_children", &cause));
    }
    let offsets = fs::read_to_string(process.join("timens_offsets"));
    let offsets = offsets.map_err(|error| failed("timens_offsets", &error))?;
    parse_boottime_offset(&offsets).ok_or_else(|| failed("timens_offsets", &"it has no offset for the boot clock"))
}

/// The offset of CLOCK_BOOTTIME in nanoseconds. Its line has whole seconds, and nanoseconds to add to them.
fn parse_boottime_offset(offsets: &str) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.trim_start().strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// `clock_offset_of` for a directory like that of a process in `/proc`, with these links to namespaces and this file
    /// of offsets.
    fn offset_with(links: &[(&str, &str)], offsets: Option<&str>) -> Result<i64> {
        let process = std::env::temp_dir().join(format!("lockfast-timens-{:016x}", fastrand::u64(..)));
        fs::create_dir_all(process.join("ns")).unwrap();
        for (name, namespace) in links {
            symlink(namespace, process.join("ns").join(name)).unwrap();
        }
        offsets.iter().for_each(|offsets| fs::write(process.join("timens_offsets"), offsets).unwrap());
        let found = clock_offset_of(&process);
        fs::remove_dir_all(process).unwrap();
        found
    }

    const SAME: [(&str, &str); 2] = [("time", "time:[7]"), ("time_for_children", "time:[7]")];

    #[test]
    fn an_offset_counts_only_for_the_own_namespace() {
        let offsets = Some("monotonic           9         0\nboottime           -2 250000000\n");
        assert_eq!(offset_with(&SAME, offsets).unwrap(), -1_750_000_000);
        let unshared = offset_with(&[("time", "time:[7]"), ("time_for_children", "time:[8]")], offsets).unwrap_err();
        assert!(unshared.to_string().contains("its children are in another time namespace"), "{unshared}");
    }

    #[test]
    fn an_unknown_offset_is_an_error_and_not_zero() {
        assert!(offset_with(&SAME, None).unwrap_err().to_string().contains("time namespaces"));
        assert!(offset_with(&SAME, Some("monotonic 0 0\n")).is_err());
        assert!(offset_with(&SAME, Some("boottime much 0\n")).is_err());
        assert!(offset_with(&SAME[..1], Some("boottime 0 0\n")).is_err());
        assert!(clock_offset_of(Path::new("/no/such/process")).is_err());
    }

    #[test]
    fn a_kernel_without_time_namespaces_has_no_offset() {
        assert_eq!(offset_with(&[("pid", "pid:[5]")], None).unwrap(), 0);
    }
}
