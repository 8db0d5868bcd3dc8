//! What can be written on the command line.

use crate::attach::How;
use crate::size;
use base::Atomic;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  bypath run --mount new:1G:/bp -- bash               try it: a file system that goes with the shell
  bypath mkfs /dev/shm/work.img --size 4G             make a file system in a file
  bypath import ~/src /dev/shm/work.img:/src          copy a directory into it
  bypath run --mount /dev/shm/work.img:/bp -- bash    a shell that sees it at /bp
  bypath run --mount /dev/shm/work.img:/bp -- sh -c 'cd /bp/src && make -j2'
  bypath ls -l /dev/shm/work.img:/src                 look into it without running anything
  bypath export /dev/shm/work.img:/src ~/out          copy it out again
  bypath check /dev/shm/work.img                      verify it
  bypath upgrade old.img                              an older program made it: today's format, in place

An image lives as long as the file that holds it: one in /dev/shm until the next reboot.
ls, cat, stat, export, info and check need only read permission on that file.";

const SPEC_HELP: &str = "\
What is seen where; may be given several times, and one inside another. SPEC is one of

  IMG                   an image (`bypath mkfs`)
  new:SIZE              an image that is made for the session and goes with it
  host:/dir             a directory of the kernel's
  fuse:COMMAND ARG… @   a FUSE daemon, unmodified, without the kernel's FUSE; @ stands for its mount point
  ceph:[MON,…][/dir]    a CephFS cluster, by ceph-fuse
  plugin:LIB.so,ARG…    a library with a struct fuse_operations (bypath_plugin.h), called in process
  s3:http://HOST/BUCKET a bucket, or s3://BUCKET for Amazon's, with /PREFIX; keys as the AWS tools find them
  objects:SERVICE?…     another store of objects: fs?root=/dir, memory

Options: ro; for images: also atomic=undo or atomic=replay (an overwrite happens whole or not at all); for host: and fuse: allow_other (serve other users of the session too, as their ids let them; without, they are
refused); for host: also sync=none (fsync and its kin check the descriptor and return: for what may be lost in a crash), and
with cache=IMG (an image in front of it) or cache (one for the session) sync=backend, sync=image (for fuse: too) or
sync=journal (when fsync returns), journal=PATH[:SIZE];
for fuse: also restart (start it again if it dies), timeout=SECONDS (60),
pages=SIZE (64M; most memory for parts of its files, 0 for none), default_permissions, log=FILE (what it prints once it serves), and
carrier=socket or carrier=memory (found out: a static daemon has a socket);
for ceph: those of fuse:, and conf=FILE, name=USER, keyring=FILE as ceph-fuse takes them;
for s3: and objects: restart, timeout, pages, log and spool=DIR (where files lie while they are written),
posix (modes, owners, times and symlinks last), close=later (uploads go on after close), cache (an image for the session).

An image whose /DIR is a directory is mounted there for the kernel as well, as long as the session lasts, if
/dev/fuse can be used: static and set-uid programs (Go's, busybox), other users and /proc see it only so. mkdir /DIR before makes it one.";

const SHRINK_HELP: &str = "\
An image takes space as it grows, and keeps it for files to come. What lies behind its last block in use is given back; free space
between files stays, and the image can grow as large as before. `bypath pack` makes a smaller file of it then.";

const STATS_HELP: &str = "\
Calls are counted by each thread for itself and added when it has 4,096 of them, or ends: a program that makes few shows
none for a while. Changes are journal records: made, removed and renamed names, attributes, files that grow. Bytes that are read
or written are not counted.";

/// A time between two looks.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 3600 seconds".to_string()) }
}

/// A file system that programs use without system calls.
#[derive(Parser)]
#[command(name = "bypath", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Make a file system in a file
    Mkfs {
        /// The image: a file that does not exist yet, or is empty
        image: PathBuf,
        /// How large it may grow (16M to 16T); space is taken as it is needed
        #[arg(long, default_value = "1G", value_parser = size::parse_image)]
        size: u64,
        /// Overwrite the image if it exists
        #[arg(long)]
        force: bool,
    },
    /// Run a program that sees images (and other file systems) as directories
    Run(Run),
    /// List the mounts of the session around this call, with their state
    Mounts {
        /// As JSON: an array
        #[arg(long)]
        json: bool,
    },
    /// Start another program in a session that runs, from anywhere
    #[command(after_help = ENTER_HELP)]
    Enter(Enter),
    /// Mount an image through the kernel, for every program and user
    #[command(after_help = MOUNT_HELP)]
    Mount(Mount),
    /// Take a kernel mount away
    Umount {
        /// The directory
        directory: PathBuf,
        /// Also if it is in use: it vanishes now, and ends with its last user
        #[arg(long, short)]
        lazy: bool,
    },
    /// Copy a directory (or file) into an image, with owners, modes, times, links and extended attributes
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// What to copy; - is an archive on standard input
        source: PathBuf,
        /// Where to: IMG:/path; parents are made, existing files replaced
        #[arg(value_name = "IMG:/PATH")]
        target: OsString,
        /// It is an archive: copy what is in it (tar, tar.gz, tar.zst, zip, wheel, squashfs: found out)
        #[arg(long)]
        unpack: bool,
        /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
        #[arg(long)]
        force: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Copy a directory (or file) out of an image
    Export {
        /// What to copy: IMG:/path
        #[arg(value_name = "IMG:/PATH")]
        source: OsString,
        /// Where to; parents are made, existing files replaced
        target: PathBuf,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make a second tree (or file) of one in the same image, which shares its data: at once, and in next to no space
    #[command(after_help = CLONE_HELP)]
    Clone {
        /// What to clone: IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/PATH")]
        source: OsString,
        /// What it shall be called: nothing may be there yet, but its parent directory must
        #[arg(value_name = "IMG:/PATH")]
        target: OsString,
        /// As JSON: an object
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Keep a directory of an image as it is now: a clone in its .snap that nobody can change
    #[command(after_help = SNAP_HELP)]
    Snap {
        /// The directory: IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/PATH")]
        source: OsString,
        /// What the snapshot shall be called: it becomes PATH/.snap/NAME
        name: OsString,
        /// As JSON: an object
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Copy an image as it is at one instant, while it is in use
    #[command(after_help = COPY_HELP)]
    Copy {
        /// The image
        image: PathBuf,
        /// The copy: a file that is not there yet
        #[arg(value_name = "NEW")]
        target: PathBuf,
        /// Replace the file that is there
        #[arg(long)]
        force: bool,
        /// How many seconds to wait for the image to be at rest
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        wait: u64,
        /// As JSON: an object
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Print what changes from one tree (or file) to another, of one image or two: exit code 0 nothing, 1 something, 2 trouble
    #[command(after_help = DIFF_HELP)]
    Diff {
        /// The first: IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/A")]
        first: OsString,
        /// The second
        #[arg(value_name = "IMG:/B")]
        second: OsString,
        /// As JSON: an array of changes
        #[arg(long)]
        json: bool,
    },
    /// Remove trees (or files) of an image: their names at once, then all that is in them
    #[command(after_help = DROP_HELP)]
    Drop {
        /// IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
        /// As JSON: an array of objects
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make one compressed file of an image that nobody uses, for a cache
    #[command(after_help = PACK_HELP)]
    Pack {
        /// The image
        image: PathBuf,
        /// The file; - is standard output
        #[arg(value_name = "FILE")]
        target: PathBuf,
        /// How hard to compress: 1 (fast) to 19 (small)
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=19))]
        level: i32,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make an image of a file that `pack` has made
    #[command(after_help = PACK_HELP)]
    Restore {
        /// The file; - is standard input
        #[arg(value_name = "FILE")]
        source: PathBuf,
        /// The image
        image: PathBuf,
        /// Replace the image if it exists
        #[arg(long)]
        force: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// List directories of images
    #[command(disable_help_flag = true)]
    Ls {
        /// IMG:/path; IMG alone is its root
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
        /// Modes, owners, sizes and times as well
        #[arg(short)]
        long: bool,
        /// Sizes for people: 1.5K, 20M
        #[arg(short = 'h')]
        human: bool,
        /// Names that start with a dot as well
        #[arg(short)]
        all: bool,
        /// Everything below as well
        #[arg(short = 'R')]
        recursive: bool,
        /// As JSON: an array of entries
        #[arg(long)]
        json: bool,
        /// Print help
        #[arg(long, action = clap::ArgAction::Help)]
        help: Option<bool>,
    },
    /// Print files of an image
    Cat {
        /// IMG:/path
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
    },
    /// Show all that is known about files of an image
    Stat {
        /// IMG:/path; IMG alone is its root
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
        /// If it is a symlink, show what it points to
        #[arg(short = 'L')]
        follow: bool,
        /// As JSON: an object, of several an array
        #[arg(long)]
        json: bool,
    },
    /// Verify an image: exit code 0 clean, 1 damaged, 2 could not be checked
    Check {
        /// The image
        image: PathBuf,
        /// Fix it. What would be given up is said first, and asked about on a terminal; what has lost
        /// its name goes to /lost+found. Nobody may use the image meanwhile
        #[arg(long)]
        repair: bool,
        /// Do not ask: give up what cannot be kept
        #[arg(long, requires = "repair")]
        yes: bool,
        /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
        #[arg(long, requires = "repair")]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Give space behind the last file of an image that nobody uses back to the file system below
    #[command(after_help = SHRINK_HELP)]
    Shrink {
        /// The image
        image: PathBuf,
        /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Let an image that nobody uses grow larger, or less, than it was made for: by copying it
    #[command(after_help = RESIZE_HELP)]
    Resize {
        /// The image
        image: PathBuf,
        /// How large it may grow (16M to 16T)
        #[arg(value_parser = size::parse_image)]
        size: u64,
        /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Say nothing but errors
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make an image of the format version before one of today's, in place; nobody may use it meanwhile
    Upgrade {
        /// The image
        image: PathBuf,
        /// Give its files new inode numbers, which fit 32 bits (images of up to 256G; new ones have them)
        #[arg(long)]
        inode32: bool,
        /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show size, use, promises and users of an image
    Info {
        /// The image; IMG:/PATH, or a path where it is mounted: what the files there take
        #[arg(value_name = "IMG[:/PATH]")]
        image: OsString,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print who uses images and mounts, and what for: the figures of one moment
    #[command(after_help = STATS_HELP)]
    Stats {
        /// Images; without any, what the session around this call has, or else all sessions of this user
        #[arg(value_name = "IMG")]
        images: Vec<PathBuf>,
        /// As JSON: an object
        #[arg(long, conflicts_with = "prometheus")]
        json: bool,
        /// As Prometheus reads it: for the textfile collector of its node exporter
        #[arg(long)]
        prometheus: bool,
    },
    /// Show the same on the terminal, with calls and changes a second, until q is pressed
    #[command(after_help = STATS_HELP)]
    Top {
        /// Images; without any, what the session around this call has, or else all sessions of this user
        #[arg(value_name = "IMG")]
        images: Vec<PathBuf>,
        /// Seconds between two looks
        #[arg(long, short = 'd', default_value = "1", value_parser = seconds)]
        interval: f64,
    },
    /// Print the structures of an image
    Dump {
        /// The image
        image: PathBuf,
    },
    /// Measure
    Bench(Bench),
    /// Look after a cache image (--mount host:DIR:/dir,cache=IMG): what it holds that its directory has not got yet
    Cache {
        #[command(subcommand)]
        what: CacheWhat,
    },
    /// Take away what sessions that were killed have left: shared files, mounts without a server
    Clean {
        /// As JSON: an array
        #[arg(long)]
        json: bool,
    },
    /// Say what this machine allows, and which way a program will be served
    #[command(after_help = DOCTOR_HELP)]
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// A program, as for `run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Print what makes a shell complete verbs, options and file names
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual, or put a page for each verb into a directory
    #[command(after_help = MAN_HELP)]
    Man {
        /// Where the pages go: bypath.1, bypath-run.1 …; made if it is not there
        directory: Option<PathBuf>,
    },
    /// Free those who wait for a server that was killed (for `mount`)
    #[command(hide = true, name = "guard-mount")]
    GuardMount {
        /// The server, and the thread of it that has started this
        server: i32,
        thread: i32,
        directory: PathBuf,
        /// The mount is over something that is to be seen again without it
        #[arg(long)]
        covers: bool,
    },
    /// Keep a cache fresh when the session is killed (for `run`)
    #[command(hide = true, name = "cache-spare")]
    CacheSpare {
        /// Between two looks at all of it; 0: as the kernel tells
        seconds: u32,
        image: PathBuf,
        directory: PathBuf,
        /// Others reach the directory through this process
        #[arg(long)]
        holds: bool,
        /// Whether it writes back
        #[arg(long)]
        writes: bool,
    },
    /// Mounts for as long as standard input lasts (for the C library)
    #[command(hide = true)]
    Session {
        #[arg(long = "mount", value_name = "SPEC:/DIR[,OPTION…]", required = true)]
        mounts: Vec<OsString>,
        /// Be the one that keeps them
        #[arg(long)]
        keep: bool,
    },
    /// Start a program that lies in a mount (for `run`)
    #[command(hide = true, name = "exec-inside")]
    ExecInside {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

const IMPORT_HELP: &str = "\
Examples:
  bypath import ~/src work.img:/src                  a tree
  bypath import --unpack linux.tar.zst work.img:/    what is in an archive
  curl -L https://example.org/a.tar.gz | bypath import - work.img:/a

Of an archive nothing lands outside the target; owners are kept if root does it.";

const CLONE_HELP: &str = "\
Examples:
  bypath clone work.img:/main work.img:/agent1     a working tree for each agent
  bypath clone /bp/golden /bp/test1                the same inside a session

All of it is there, or nothing: it is made aside, as .bypath-aside-… in the same directory, and gets its name last. What a
killed clone leaves there goes with the next one. Each file is as it was at one moment; what a program has mapped is copied.
Owners, modes, times, links and extended attributes are kept, as far as the caller may.";

const SNAP_HELP: &str = "\
Examples:
  bypath snap work.img:/main monday            as work.img:/main/.snap/monday
  bypath clone /bp/main/.snap/monday /bp/old   back, to be changed

What is below the snapshot's name can only be read, by everybody: all else is EROFS. `bypath drop` removes it. Snapshots are no
part of clones.";

const COPY_HELP: &str = "\
Examples:
  bypath copy work.img backup.img
  bypath copy --json --wait 60 work.img backup.img

Nobody is held up. What changes meanwhile is copied again, until nothing has changed for as long as two looks at the image take: then the
copy is the image as it was between the two, and what was half done then is as after a crash. An image that is never at rest
can't be copied so: after --wait seconds that is said, and nothing is left. Where the file system below can share blocks, it does.";

const DIFF_HELP: &str = "\
Examples:
  bypath diff work.img:/main work.img:/agent1
  bypath diff /bp/main /bp/agent1

A line a change, in the order of paths: A added, D deleted, M other contents (or target of a symlink), T another type,
P mode, owner or extended attributes alone. A directory that is in one of them only is one line, with / at its end.
What clones still share is not read; times are not compared.";

const DROP_HELP: &str = "\
Examples:
  bypath drop work.img:/agent1 work.img:/agent2
  bypath drop /bp/test1

There is no way back. Directories of the caller's that may not be written to are no obstacle. What no other file shares is
free again when it returns.";

const RESIZE_HELP: &str = "\
Examples:
  bypath resize work.img 20G

A new image is made beside the old one (work.img.resize), which needs room for both, and takes its name when it is whole; stopped or
killed before, the old one is as it was. Kept: everything but inode numbers and the times of birth and change.";

const PACK_HELP: &str = "\
Examples:
  bypath pack work.img work.bpk              nobody may be using the image
  bypath restore work.bpk /dev/shm/work.img
  bypath pack work.img - | ssh host bypath restore - work.img";

const ENTER_HELP: &str = "\
Examples:
  bypath enter                       a shell in the only session of this user's
  bypath enter --list                which sessions there are: number, first program, mounts
  bypath enter 4711 -- make test     in the session of that number; or of that image, or that directory

What it starts may go on after the session has ended, except in mounts that are the session's own (fuse:, host:, new:).";

const DOCTOR_HELP: &str = "\
Examples:
  bypath doctor                this machine: what is missing, what to do
  bypath doctor rg             and whether the library is loaded into ripgrep, or only a kernel mount serves it

Exit code 0 if sessions work here and the program is served, 1 if not.";

const COMPLETIONS_HELP: &str = "\
Examples:
  source <(bypath completions bash)                                  for this shell
  bypath completions bash > ~/.local/share/bash-completion/completions/bypath
  bypath completions zsh > \"${fpath[1]}/_bypath\"
  bypath completions fish > ~/.config/fish/completions/bypath.fish";

const MAN_HELP: &str = "\
Examples:
  bypath man | man -l -                     read it
  bypath man ~/.local/share/man/man1        then: man bypath, man bypath-run";

const MOUNT_HELP: &str = "\
The mount shows the same files as `bypath run --mount IMG:/dir`, at the same time, with the same inode numbers and locks.
It is for static and set-uid programs, and for users who may not open the image itself: they may do what the modes say.

Examples:
  bypath mount work.img /mnt/work          returns as soon as the mount answers
  bypath mount -o ro work.img /mnt/work    nobody can change anything through it
  bypath umount /mnt/work
  bypath mount --foreground --log /var/log/work.log work.img /mnt/work

As root, or with fusermount3 (package fuse3) for one's own use. Set-id bits and devices count only if nobody but root may write the image.";

#[derive(clap::Args)]
pub struct Mount {
    /// The image
    pub image: PathBuf,
    /// A directory
    pub directory: PathBuf,
    /// ro: nobody can change anything through it; atomic=undo, atomic=replay: an overwrite happens whole or not at all
    #[arg(
        short, long = "options", value_name = "OPTION", value_delimiter = ',',
        value_parser = ["ro", "rw", "atomic=undo", "atomic=replay"],
    )]
    pub options: Vec<String>,
    /// Serve from this process, until the mount is taken away
    #[arg(long, short)]
    pub foreground: bool,
    /// Where the server reports what went wrong, and when it began and ended
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
    #[arg(long)]
    pub force: bool,
    /// Threads that answer the kernel
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
    pub threads: u8,
    /// Say on standard output when the mount answers, then keep quiet
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Take the mount away when standard input has ended and nobody uses the image
    #[arg(long, hide = true)]
    pub while_used: bool,
    /// It is a cache, of the directory that is reached there
    #[arg(long, hide = true, value_name = "DIR")]
    pub below: Option<PathBuf>,
    /// When fsync returns: backend, image, journal
    #[arg(long, hide = true, default_value = "backend")]
    pub sync: String,
    /// Who has started this, and is no user of the image
    #[arg(long, hide = true)]
    pub session: Option<u32>,
}

impl Mount {
    /// The last word on whether anything can be changed.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().rfind(|option| ["ro", "rw"].contains(&option.as_str())).is_some_and(|option| option == "ro")
    }

    /// How the image is attached.
    pub fn how(&self) -> How {
        let atomic = self.options.iter().rev().find_map(|option| option.strip_prefix("atomic="));
        How {
            read_only: self.is_read_only(),
            atomic: atomic.and_then(|name| Atomic::from_name(name.as_bytes())),
            ..How::default()
        }
    }
}

#[derive(clap::Args)]
pub struct Run {
    /// What is seen where; may be given several times, and one inside another
    #[arg(long = "mount", short = 'm', value_name = "SPEC:/DIR[,OPTION…]", long_help = SPEC_HELP)]
    pub mounts: Vec<OsString>,
    /// A file that lists mounts: [[mount]] with source = "SPEC", at = "/DIR", options = ["ro", …]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Also if another machine uses the image, or did when it crashed: you know that it does not any more
    #[arg(long)]
    pub force: bool,
    /// Do without the kernel's way in: no mount is made beside the short way
    #[arg(long)]
    pub no_fuse: bool,
    /// Leave what is not written back yet in the caches (cache=IMG): the next session, or bypath cache drain, goes on
    #[arg(long)]
    pub leave: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(clap::Args)]
pub struct Enter {
    /// The number of its `bypath run` or of one of its programs, its image, or its mount point
    pub session: Option<OsString>,
    /// Show the sessions there are
    #[arg(long)]
    pub list: bool,
    /// As JSON: an array
    #[arg(long, requires = "list")]
    pub json: bool,
    /// The program and its arguments; a shell
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Subcommand)]
pub enum CacheWhat {
    /// Show what is not in the directory yet, who writes it back, and what failed
    Status {
        /// The cache image, or the directory
        place: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write everything back that is not in the directory yet
    Drain {
        /// The cache image, or the directory
        place: PathBuf,
    },
    /// Give up the changes of one name, which the directory refuses: it is seen there as the directory has it, and kept in
    /// the image below /lost
    Skip {
        /// The cache image, or the directory
        place: PathBuf,
        /// Its path in the directory
        path: PathBuf,
    },
    /// Copy what is not in the directory yet to another one, by its path; what was removed is listed
    Export {
        /// The cache image, or the directory
        place: PathBuf,
        /// Where to
        target: PathBuf,
    },
    /// Make what a journal holds in its directory, when the cache image is gone (a stop of the machine)
    Replay {
        /// The directory
        directory: PathBuf,
        /// Leave out what is missing in the directory
        #[arg(long)]
        skip_missing: bool,
    },
    /// Give up what is not in the directory yet, and remove the cache image
    Discard {
        /// The cache image, or the directory
        place: PathBuf,
        /// Also if changes are lost
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    pub what: BenchWhat,
}

#[derive(Subcommand)]
pub enum BenchWhat {
    /// Time single calls, beside the kernel's file systems
    #[command(disable_help_flag = true)]
    Micro {
        /// Options: see `bypath bench micro --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// A FUSE file system by the kernel, by our channel and in process
    #[command(disable_help_flag = true)]
    Directfuse {
        /// Options: see `bypath bench directfuse --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Filebench's loads, as MeLo@V compares them: with syncs and without, on images with undo and replay
    #[command(disable_help_flag = true)]
    Melo {
        /// Options: see `bypath bench melo --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Calls one by one and at once, small files, filebench: an image beside the kernel's file systems, as DirectFS compares them
    #[command(disable_help_flag = true)]
    Directfs {
        /// Options: see `bypath bench directfs --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Lines of memory that calls touch, and by which functions; code between calls; inodes; `grep`: as DenseFS looks at them
    #[command(disable_help_flag = true)]
    Densefs {
        /// Options: see `bypath bench densefs --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// All figures of the five papers, beside the papers' numbers: tables and one page
    #[command(disable_help_flag = true)]
    Figures {
        /// Options: see `bypath bench figures --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Calls and programs on an image behind the caches that ByVFS compares, beside the kernel's file systems
    #[command(disable_help_flag = true)]
    Byvfs {
        /// Options: see `bypath bench byvfs --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}
