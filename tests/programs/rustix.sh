#!/bin/sh
# needs: cargo gcc
# ignore: /target/|Cargo.lock
# seconds: 300
# A Rust program that opens files by std and goes on by system calls of its own (rustix, and tempfile where it is in the registry
# here), and the other way round; in threads, and with children by std.
tool=$(command -v cargo)
home=${tool%/.cargo/bin/cargo}
[ ! -d "$home/.rustup" ] || export RUSTUP_HOME="$home/.rustup"
[ ! -d "$home/.cargo/registry" ] || export CARGO_HOME="$home/.cargo"
export CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 RUSTUP_TOOLCHAIN="$(ls "$home/.rustup/toolchains" 2>/dev/null | head -1)"
[ -n "$RUSTUP_TOOLCHAIN" ] || unset RUSTUP_TOOLCHAIN
mkdir -p p/src
cd p || exit
package() { # DEPENDENCY…
    printf '[package]\nname = "own"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n[profile.dev]\ndebug = 0\nopt-level = 1\n[features]\nwith = []\n[dependencies]\n'
    printf '%s\n' 'rustix = { version = "1", features = ["fs", "process", "thread", "event", "pipe", "mm"] }' "$@"
}
cat >src/main.rs <<'P'
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

#[cfg(feature = "with")]
fn temporary(dir: &Path) {
    let mut t = tempfile::NamedTempFile::new_in(dir).unwrap();
    write!(t, "one two three").unwrap();
    t.as_file().sync_all().unwrap();
    t.persist(dir.join("kept")).unwrap();
    let t = tempfile::NamedTempFile::new_in(dir).unwrap();
    assert_eq!(t.persist_noclobber(dir.join("kept")).unwrap_err().error.kind(), std::io::ErrorKind::AlreadyExists);
    let mut spare = tempfile::tempfile_in(dir).unwrap();
    spare.write_all(b"gone").unwrap();
    assert_eq!(fs::fstat(&spare).unwrap().st_nlink, 0);
    let tree = tempfile::tempdir_in(dir).unwrap();
    std::fs::write(tree.path().join("a"), b"a").unwrap();
    tree.close().unwrap();
}
#[cfg(not(feature = "with"))]
fn temporary(dir: &Path) {
    std::fs::write(dir.join("new"), "one two three").unwrap();
    fs::renameat_with(fs::CWD, dir.join("new"), fs::CWD, dir.join("kept"), RenameFlags::NOREPLACE).unwrap();
}

fn files(dir: &Path, said: &mut String) {
    use std::fmt::Write as _;
    std::fs::create_dir_all(dir).unwrap();
    temporary(dir);
    let kept = dir.join("kept");
    let mut file = std::fs::File::from(fs::openat(fs::CWD, &kept, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap());
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"!").unwrap();
    fs::fsync(&file).unwrap();
    writeln!(said, "size {}", fs::fstat(&file).unwrap().st_size).unwrap();
    fs::ftruncate(&file, 5).unwrap();
    fs::flock(&file, fs::FlockOperation::LockExclusive).unwrap();
    fs::fchmod(&file, Mode::from_raw_mode(0o640)).unwrap();
    let d = fs::openat(fs::CWD, dir, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    fs::mkdirat(&d, "sub", 0o755.into()).unwrap();
    fs::symlinkat("kept", &d, "link").unwrap();
    fs::renameat_with(&d, "kept", &d, "sub/moved", RenameFlags::NOREPLACE).unwrap();
    writeln!(said, "{:?}", fs::renameat_with(&d, "kept", &d, "sub/moved", RenameFlags::NOREPLACE)).unwrap();
    writeln!(said, "{:?}", fs::statat(&d, "nothing", AtFlags::empty()).map(|s| s.st_size)).unwrap();
    let mut names: Vec<_> = fs::Dir::read_from(&d).unwrap().map(|e| e.unwrap().file_name().to_owned()).collect();
    names.sort();
    writeln!(said, "{names:?}").unwrap();
    fs::linkat(&d, "sub/moved", &d, "second", AtFlags::empty()).unwrap();
    fs::unlinkat(&d, "link", AtFlags::empty()).unwrap();
    let mut text = String::new();
    std::fs::File::open(dir.join("second")).unwrap().read_to_string(&mut text).unwrap();
    writeln!(said, "{text} {}", rustix::process::getcwd(Vec::new()).unwrap().as_bytes() == std::env::current_dir().unwrap().as_os_str().as_encoded_bytes()).unwrap();
}

fn main() {
    let here = std::env::current_dir().unwrap();
    let mut said = String::new();
    files(&here.join("main"), &mut said);
    println!("{said}");
    let threads: Vec<_> = (0..4).map(|n| here.join(format!("t{n}"))).map(|at| std::thread::spawn(move || {
        let mut said = String::new();
        (0..20).for_each(|round| files(&at.join(format!("{round}")), &mut said));
        said
    })).collect();
    assert!(threads.into_iter().all(|t| t.join().unwrap() == said.repeat(20)));
    let out = fs::openat(fs::CWD, "out", OFlags::CREATE | OFlags::WRONLY, 0o644.into()).unwrap();
    let child = "echo child; cat t0/0/second; echo rest >child";
    println!("{}", Command::new("sh").arg("-c").arg(child).stdout(Stdio::from(out)).status().unwrap());
    println!("{:?}", std::fs::read_to_string("out").unwrap());
    let mut child = Command::new("cat").stdin(Stdio::from(std::fs::File::open("out").unwrap())).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    println!("{text:?} {}", child.wait().unwrap());
    let (r, w) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&w, b"x").unwrap();
    let second = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
    println!("{:?}", rustix::event::poll(&mut [rustix::event::PollFd::new(&r, rustix::event::PollFlags::IN)], Some(&second)));
    let map = std::fs::OpenOptions::new().read(true).write(true).create(true).open("map").unwrap();
    fs::ftruncate(&map, 8192).unwrap();
    unsafe {
        use rustix::mm::*;
        let at = mmap(std::ptr::null_mut(), 8192, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, map.as_fd(), 0).unwrap() as *mut u8;
        at.add(5000).write(7);
        msync(at.cast(), 8192, MsyncFlags::SYNC).unwrap();
        munmap(at.cast(), 8192).unwrap();
    }
    println!("{}", std::fs::read("map").unwrap()[5000]);
}
P
package 'tempfile = "3"' >Cargo.toml
if ! cargo build -q --features with 2>/dev/null; then
    echo 'without tempfile, which is not in the registry here'
    package >Cargo.toml
    cargo build -q
fi
echo "exit $?"
target/debug/own
echo "exit $?"
ls -a
