//! The ways to the file system, each with a worker at its end.

use super::leavings;
use super::worker::Spent;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How the work gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The directory itself.
    Native,
    /// The daemon, by the kernel.
    Kernel,
    /// The daemon, by our channel; the program is preloaded.
    Channel,
    /// The same daemon at a socket, as if nothing could be loaded into it.
    Socket,
    /// The library in the worker; preloaded.
    Plugin,
    /// The same by the C API.
    PluginApi,
}

impl How {
    /// Those that do everything, in the order of the tables.
    pub const ALL: [How; 5] = [How::Native, How::Kernel, How::Channel, How::Plugin, How::PluginApi];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            How::Native => "native",
            How::Kernel => "kernel FUSE",
            How::Channel => "channel",
            How::Socket => "socket",
            How::Plugin => "in process",
            How::PluginApi => "in process, C API",
        }
    }
}

/// The compiled file system, in a directory that goes with it.
pub struct Built(PathBuf);

impl Built {
    /// Compiles daemon and library. `Err`: what is missing.
    pub fn new() -> Result<Built, String> {
        leavings::sweep(&std::env::temp_dir());
        let built = Built(leavings::own(&std::env::temp_dir(), ""));
        std::fs::create_dir_all(&built.0).map_err(|e| format!("{}: {e}", built.0.display()))?;
        let source = built.0.join("passing.c");
        std::fs::write(&source, include_str!("passing.c")).map_err(|e| format!("{}: {e}", source.display()))?;
        built.compile(&["-shared", "-fPIC", "-DPLUGIN"], &built.library(), &[])?;
        built.compile(&[], &built.daemon(), &["-lfuse3"])?;
        Ok(built)
    }

    fn compile(&self, options: &[&str], to: &Path, libraries: &[&str]) -> Result<(), String> {
        let mut command = Command::new("cc");
        command.args(["-O2", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3"]).args(options).arg("-o").arg(to);
        let output = command.arg(self.0.join("passing.c")).args(libraries).output().map_err(|e| format!("cc: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("").to_string();
        Err(format!("the file system does not compile (are gcc and libfuse3-dev installed?): {said}"))
    }

    fn daemon(&self) -> PathBuf {
        self.0.join("passing")
    }

    fn library(&self) -> PathBuf {
        self.0.join("passing.so")
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon that the kernel knows, mounted on a directory.
struct Mounted {
    child: Child,
    point: PathBuf,
}

impl Mounted {
    fn new(mut daemon: Command, point: PathBuf) -> Result<Mounted, String> {
        let fail = |e: std::io::Error| format!("{}: {e}", point.display());
        std::fs::create_dir_all(&point).map_err(fail)?;
        let device = std::fs::metadata(&point).map_err(fail)?.dev();
        // SAFETY: one system call; the daemon unmounts if we are killed.
        unsafe {
            daemon.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            })
        };
        let child = daemon.arg(&point).arg("-f").stdin(Stdio::null()).spawn().map_err(|e| format!("passing: {e}"))?;
        let mut mounted = Mounted { child, point };
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if std::fs::metadata(&mounted.point).is_ok_and(|about| about.dev() != device) {
                return Ok(mounted);
            }
            if let Ok(Some(status)) = mounted.child.try_wait() {
                return Err(format!("the kernel's FUSE can't be had ({status})"));
            }
            if Instant::now() > until {
                return Err("the daemon did not mount in 20 seconds".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: a child of ours that nobody has waited for; libfuse unmounts at this signal.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.point);
    }
}

/// On which processors the processes of a way run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Where the kernel puts them.
    Any,
    /// All on the same.
    One,
    /// The program on one, the daemon on another.
    Apart,
}

impl On {
    /// For the CSV file.
    pub fn name(self) -> &'static str {
        match self {
            On::Any => "any",
            On::One => "one",
            On::Apart => "apart",
        }
    }
}

/// A worker at the end of a way.
pub struct Way {
    /// Which.
    pub how: How,
    /// Where its processes run.
    pub on: On,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    // After the worker, which is inside.
    _mounted: Option<Mounted>,
}

impl Way {
    /// Opens a way to `dir`, whose kernel mount, if it needs one, lies at `point`.
    pub fn open(built: &Built, how: How, on: On, dir: &Path, point: &Path) -> Result<Way, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let start = |program: &Path| {
            if on == On::Any {
                return Command::new(program);
            }
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]).arg(program);
            command
        };
        let work = |command: &mut Command, how: &str, place: &Path| {
            command.args(["bench", "directfuse", "--worker", how]).arg(place);
        };
        let session_with = |source: String, options: &str| {
            let mut command = start(&own);
            command.args(["run", "--no-fuse", "--mount", &format!("{source}:/bypath-bench{options}"), "--"]).arg(&own);
            work(&mut command, "libc", Path::new("/bypath-bench"));
            command
        };
        let session = |source| session_with(source, "");
        let mut mounted = None;
        let mut command = match how {
            How::Native => {
                let mut command = start(&own);
                work(&mut command, "libc", dir);
                command
            }
            How::Kernel => {
                let mut daemon = start(&built.daemon());
                daemon.arg(dir);
                mounted = Some(Mounted::new(daemon, point.to_path_buf())?);
                let mut command = start(&own);
                work(&mut command, "libc", point);
                command
            }
            How::Channel => session(format!("fuse:{} {} @ -f", built.daemon().display(), dir.display())),
            How::Socket => session_with(format!("fuse:{} {} @ -f", built.daemon().display(), dir.display()), ",carrier=socket"),
            How::Plugin => session(format!("plugin:{},{}", built.library().display(), dir.display())),
            How::PluginApi => {
                let mut command = start(&own);
                let source = format!("plugin:{},{}", built.library().display(), dir.display());
                work(&mut command, "api", Path::new(&source));
                command
            }
        };
        if on == On::Apart {
            command.env("PASSING_ON", "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| format!("worker: {e}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { return Err("worker: no pipes".into()) };
        let mut way = Way { how, on, child, to: Some(to), from: BufReader::new(from), _mounted: mounted };
        match way.hear()?.as_str() {
            "ready" => Ok(way),
            other => Err(format!("{}: {other}", how.name())),
        }
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        // A worker that says nothing must not keep us from ending. It says one line at a time.
        let mut wait = libc::pollfd { fd: self.from.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, which is open.
        while unsafe { libc::poll(&mut wait, 1, 500) } <= 0 {
            leavings::go_on()?;
        }
        match self.from.read_line(&mut line) {
            Ok(0) => Err(format!("{}: the worker has ended: {:?}", self.how.name(), self.child.wait())),
            Ok(_) => Ok(line.trim_end().to_string()),
            Err(error) => Err(format!("{}: {error}", self.how.name())),
        }
    }

    /// Has a job done.
    pub fn run(&mut self, job: &str, bytes: usize, n: usize) -> Result<Spent, String> {
        let to = self.to.as_mut().ok_or("worker: no pipe")?;
        to.write_all(format!("{job}\t{bytes}\t{n}\n").as_bytes())
            .and_then(|()| to.flush())
            .map_err(|e| format!("worker: {e}"))?;
        let line = self.hear().map_err(|what| format!("{what} ({job})"))?;
        Spent::parse(&line).ok_or_else(|| format!("{}: {job}: {line}", self.how.name()))
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // The worker ends with its input.
        self.to = None;
        let _ = self.child.wait();
    }
}
