//! The server under measurement: the cores that it and its clients run on, and its own counters.

use std::future::Future;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use servers::Redis;

use super::resp::{Console, Reply};

/// The processors that the server and its clients share.
///
/// Waking an idle virtual core costs more than a whole round trip and hides every difference. So latencies are compared on one
/// core, and the figures with all cores are shown beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    One,
    All,
}

impl Cores {
    pub(crate) const BOTH: [Self; 2] = [Self::One, Self::All];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::One => "one core",
            Self::All => "all cores",
        }
    }

    fn cpu_set(self) -> CpuSet {
        let all = sched_getaffinity(None).expect("a thread may read its affinity");
        match self {
            Self::All => all,
            Self::One => {
                let mut one = CpuSet::new();
                one.set((0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).expect("a thread runs somewhere"));
                one
            }
        }
    }
}

/// A Redis server for one section.
#[derive(Debug)]
pub(crate) struct Server {
    redis: Redis,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self { redis: Redis::start() }
    }

    pub(crate) fn port(&self) -> u16 {
        self.redis.port()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.redis.pid()
    }

    pub(crate) fn meter(&self) -> Meter {
        Meter::connect(self.port())
    }

    /// Runs `work` as a task of a new runtime, with this server on the same cores.
    pub(crate) fn run_task<T: Send + 'static>(
        &self,
        cores: Cores,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.run_on(cores, move || {
            // One worker for each core of this thread's affinity.
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
            let result = runtime.block_on(runtime.spawn(work)).expect("the benchmark does not panic");
            runtime.shutdown_timeout(Duration::from_secs(1));
            result
        })
    }

    /// Runs `work` on a new thread; threads and processes that it starts run on the same cores.
    pub(crate) fn run_on<T: Send>(&self, cores: Cores, work: impl FnOnce() -> T + Send) -> T {
        let server = Pid::from_raw(self.redis.pid().cast_signed());
        let set = cores.cpu_set();
        sched_setaffinity(server, &set).expect("a process may pin its child");
        let result = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                sched_setaffinity(None, &set).expect("a thread may pin itself");
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        sched_setaffinity(server, &Cores::All.cpu_set()).expect("a process may pin its child");
        result
    }

    /// The figures of a child process of this program, from the lines of `key=value` that it prints.
    pub(crate) fn child_figures(&self, mode: &str, args: &[String]) -> impl Fn(&str) -> f64 + use<> {
        let output = self.child(mode, args).wait_with_output().expect("it ends by itself");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        move |key| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
        }
    }

    /// This program as a child process, which ends with this one, however this one ends.
    pub(crate) fn child(&self, mode: &str, args: &[String]) -> Child {
        let program = std::env::current_exe().expect("this program has a file");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command.args(["redis-child", mode, &self.port().to_string()]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("this program starts again")
    }
}

/// The machine that figures belong to.
pub(crate) fn machine() -> String {
    let version = Server::start().meter().console.call(&["INFO", "server"]).text();
    let version = version.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown").to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let system = rustix::system::uname();
    format!(
        "Redis {version} on {cores} cores, {} {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy()
    )
}

/// The load average of the last minute: how many processes ran or waited for a core.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The work of a server since the last `start`.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) console: Console,
    commands_at_start: f64,
    cpu_at_start: Duration,
}

/// Commands to count for a client that sends only scripts, as lockfast does. Redis counts the commands of clients and of
/// scripts under the same names, so a command that a script of the measured client calls must not be counted.
pub(crate) const SCRIPTS: &[&str] = &["evalsha", "eval", "fcall", "evalsha_ro"];
/// Commands to count for a client that sends `SET` itself, and whose scripts do not call it.
pub(crate) const SCRIPTS_AND_SET: &[&str] = &["evalsha", "eval", "set"];

impl Meter {
    pub(crate) fn connect(port: u16) -> Self {
        Self { console: Console::connect(port), commands_at_start: 0.0, cpu_at_start: Duration::ZERO }
    }

    pub(crate) fn start(&mut self, commands: &[&str]) {
        self.commands_at_start = self.commands_so_far(commands);
        self.cpu_at_start = self.cpu_so_far();
    }

    /// How many of these commands ran since `start`, and the server's processor time since then.
    pub(crate) fn read(&mut self, commands: &[&str]) -> (f64, Duration) {
        let cpu = self.cpu_so_far() - self.cpu_at_start;
        (self.commands_so_far(commands) - self.commands_at_start, cpu)
    }

    pub(crate) fn commands_so_far(&mut self, commands: &[&str]) -> f64 {
        let stats = self.console.call(&["INFO", "commandstats"]).text();
        let calls = |name: &str| -> f64 {
            let key = format!("cmdstat_{name}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(&key));
            line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0.0)
        };
        commands.iter().map(|name| calls(name)).sum()
    }

    fn cpu_so_far(&mut self) -> Duration {
        let stats = self.console.call(&["INFO", "cpu"]).text();
        let seconds = |key| info_field(&stats, key);
        Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys"))
    }

    /// How long the server was busy with all calls of this command.
    pub(crate) fn time_in(&mut self, command: &str) -> Duration {
        let stats = self.console.call(&["INFO", "commandstats"]).text();
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let micros = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next()?.parse().ok());
        Duration::from_micros(micros.unwrap_or(0))
    }

    /// Microseconds of each call of this command in the slow log.
    pub(crate) fn slow_calls(&mut self, command: &str) -> Vec<f64> {
        // -1: all entries. An entry is an id, a time, microseconds, the words of the command, and more.
        let Reply::List(entries) = self.console.call(&["SLOWLOG", "GET", "-1"]) else { return Vec::new() };
        let micros = |entry: Reply| {
            let Reply::List(fields) = entry else { panic!("Redis answered {entry:?} where a slow call was due") };
            let [_, _, micros, Reply::List(words), ..] = &fields[..] else { panic!("a slow call reads {fields:?}") };
            let has_this_command = matches!(words.first(), Some(Reply::Text(word)) if word == command);
            has_this_command.then(|| micros.clone().number() as f64)
        };
        entries.into_iter().filter_map(micros).collect()
    }

    /// How many of these keys exist.
    pub(crate) fn count_existing(&mut self, keys: impl Iterator<Item = String>) -> f64 {
        let keys: Vec<String> = keys.collect();
        let existing = |keys: &[String]| {
            let args: Vec<&str> = std::iter::once("EXISTS").chain(keys.iter().map(String::as_str)).collect();
            self.console.call(&args).number() as f64
        };
        keys.chunks(1_000).map(existing).sum()
    }

    /// How many clients are connected besides this one.
    pub(crate) fn clients(&mut self) -> f64 {
        info_field(&self.console.call(&["INFO", "clients"]).text(), "connected_clients") - 1.0
    }
}

fn info_field(info: &str, key: &str) -> f64 {
    let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}
