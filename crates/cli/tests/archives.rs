//! Archives into images, images into files and back: what comes out is what went in, and nothing lands elsewhere.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A fresh directory with an image, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let path = base.join(format!("bypath-archive-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let scratch = Scratch(path);
        scratch.good(&["mkfs", &scratch.path("i"), "--size", "64M"], b"");
        scratch
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    fn place(&self, path: &str) -> String {
        format!("{}:{path}", self.path("i"))
    }

    fn bypath(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bypath"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Who refuses it does not read it all.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    #[track_caller]
    fn good(&self, args: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.bypath(args, input);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    #[track_caller]
    fn refused(&self, args: &[&str], input: &[u8], word: &str) {
        let output = self.bypath(args, input);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.starts_with("bypath: ") && text.lines().count() == 1 && text.contains(word), "{args:?}: {text}");
    }

    fn cat(&self, path: &str) -> Vec<u8> {
        self.good(&["cat", &self.place(path)], b"")
    }

    fn stat(&self, path: &str) -> String {
        String::from_utf8(self.good(&["stat", "--json", &self.place(path)], b"")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Longer than what is copied at a time, with a hole in the middle.
fn large() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..3_500_000u32).map(|at| (at / 11) as u8).collect();
    bytes[1_000_000..2_200_000].fill(0);
    bytes
}

fn member(archive: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, path: &str, link: &str, contents: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(contents.len() as u64);
    header.set_mode(if kind.is_dir() { 0o750 } else { 0o640 });
    header.set_mtime(981_173_106);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    // As it is, even where a careful program would not write it.
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    if !link.is_empty() {
        header.set_link_name_literal(link).unwrap();
    }
    header.set_cksum();
    archive.append(&header, contents).unwrap();
}

fn archive() -> Vec<u8> {
    use tar::EntryType::{Directory, Fifo, Link, Regular, Symlink};
    let mut archive = tar::Builder::new(Vec::new());
    member(&mut archive, Directory, "./", "", b"");
    member(&mut archive, Directory, "./dir/", "", b"");
    member(&mut archive, Regular, "./dir/file", "", b"contents\n");
    member(&mut archive, Link, "./again", "./dir/file", b"");
    member(&mut archive, Symlink, "link", "dir/file", b"");
    member(&mut archive, Fifo, "fifo", "", b"");
    member(&mut archive, Regular, "without/parents/large", "", &large());
    archive.into_inner().unwrap()
}

/// Goal: a tar comes in with everything that it holds, by each compression, as a file and as a stream, twice.
#[test]
fn tars() {
    let scratch = Scratch::new("tar");
    let plain = archive();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let zstd = zstd::encode_all(&plain[..], 1).unwrap();
    for (name, bytes) in [("plain", plain), ("gzip", gzip.finish().unwrap()), ("zstd", zstd)] {
        std::fs::write(scratch.path(name), &bytes).unwrap();
        for place in [scratch.place(&format!("/{name}/stream")), scratch.place(&format!("/{name}/file"))] {
            scratch.good(&["import", "-", &place], &bytes);
            scratch.good(&["import", "--unpack", &scratch.path(name), &place], b"");
        }
        assert_eq!(scratch.cat(&format!("/{name}/stream/link")), b"contents\n");
        assert!(scratch.cat(&format!("/{name}/file/without/parents/large")) == large());
        let (first, again) = (scratch.stat(&format!("/{name}/file/dir/file")), scratch.stat(&format!("/{name}/file/again")));
        assert!(first.contains("981173106") && first.contains("640"), "{first}");
        let number =
            |text: &str| text.lines().find(|line| line.contains("\"inode\"") || line.contains("\"ino\"")).map(str::to_string);
        assert!(number(&first).is_some() && number(&first) == number(&again), "{first} {again}");
        assert!(scratch.stat(&format!("/{name}/stream/dir")).contains("981173106"));
    }
    assert!(String::from_utf8(scratch.good(&["check", &scratch.path("i")], b"")).unwrap().contains("clean"));
}

/// Goal: a zip file, which a wheel is, comes in with its modes and links.
#[test]
fn zips() {
    let scratch = Scratch::new("zip");
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    archive.add_directory("package/", options.unix_permissions(0o755)).unwrap();
    archive.start_file("package/run", options.unix_permissions(0o755)).unwrap();
    archive.write_all(b"#!/bin/sh\n").unwrap();
    archive.start_file("package/large", options.unix_permissions(0o644)).unwrap();
    archive.write_all(&large()).unwrap();
    archive.add_symlink("package/link", "run", options).unwrap();
    let bytes = archive.finish().unwrap().into_inner();
    std::fs::write(scratch.path("a.whl"), &bytes).unwrap();
    scratch.good(&["import", "--unpack", &scratch.path("a.whl"), &scratch.place("/file")], b"");
    scratch.good(&["import", "-", &scratch.place("/stream")], &bytes);
    for root in ["/file", "/stream"] {
        assert_eq!(scratch.cat(&format!("{root}/package/link")), b"#!/bin/sh\n");
        assert!(scratch.cat(&format!("{root}/package/large")) == large());
        assert!(scratch.stat(&format!("{root}/package/run")).contains("755"));
    }
    // Without the flag it is a file like any.
    scratch.good(&["import", &scratch.path("a.whl"), &scratch.place("/a.whl")], b"");
    assert!(scratch.cat("/a.whl") == bytes);
}

/// Goal: what would land outside the target is refused; so is what is no archive, and one that breaks off.
#[test]
fn hostile() {
    use tar::EntryType::{Regular, Symlink};
    let scratch = Scratch::new("hostile");
    let place = scratch.place("/target");
    let mut above = tar::Builder::new(Vec::new());
    member(&mut above, Regular, "a/../../outside", "", b"x");
    scratch.refused(&["import", "-", &place], &above.into_inner().unwrap(), "leads out");
    let mut by_link = tar::Builder::new(Vec::new());
    member(&mut by_link, Symlink, "link", "/", b"");
    member(&mut by_link, Regular, "link/outside", "", b"x");
    scratch.refused(&["import", "-", &place], &by_link.into_inner().unwrap(), "not a directory");
    scratch.refused(&["import", "-", &place], &b"just text\n".repeat(1000), "not an archive");
    let whole = archive();
    scratch.refused(&["import", "-", &place], &whole[..whole.len() / 2], "broken off");
    // What a download that failed leaves in a pipe, by each compression; an archive without members is one.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"").unwrap();
    for nothing in [Vec::new(), gzip.finish().unwrap(), zstd::encode_all(&b""[..], 1).unwrap()] {
        scratch.refused(&["import", "-", &place], &nothing, "empty");
    }
    scratch.good(&["import", "-", &place], &[0; 10_240]);
    let output = scratch.good(&["ls", &scratch.place("/")], b"");
    assert_eq!(String::from_utf8(output).unwrap(), "target\n");
    assert!(String::from_utf8(scratch.good(&["check", &scratch.path("i")], b"")).unwrap().contains("clean"));
}

/// Goal: a packed image is the same when it is restored; damage is noticed, and nothing is left of it.
#[test]
fn packed() {
    let scratch = Scratch::new("pack");
    scratch.good(&["import", "-", &scratch.place("/")], &archive());
    let (image, file, back) = (scratch.path("i"), scratch.path("i.bpk"), scratch.path("back"));
    scratch.good(&["pack", "-q", &image, &file], b"");
    scratch.good(&["restore", "-q", &file, &back], b"");
    assert!(std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap());
    assert_eq!(scratch.good(&["cat", &format!("{back}:/dir/file")], b""), b"contents\n");
    let mut bytes = scratch.good(&["pack", "-q", &image, "-"], b"");
    scratch.refused(&["restore", "-", &back], &bytes, "--force");
    scratch.good(&["restore", "--force", "-", &back], &bytes);
    std::fs::remove_file(&back).unwrap();
    scratch.refused(&["restore", "-", &back], &bytes[..bytes.len() - 9], "damaged");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    scratch.refused(&["restore", "-", &back], &bytes, "damaged");
    scratch.refused(&["restore", "-", &back], b"something else altogether, of some length", "not what");
    assert!(!Path::new(&back).exists() && !Path::new(&format!("{back}.part")).exists());
    scratch.refused(&["pack", &scratch.path("none"), &file], b"", "no such file");
}

/// Where the frames of a packed file begin; the file's end.
fn frames(packed: &[u8]) -> Vec<usize> {
    let mut at = vec![24];
    while let Some(&last) = at.last().filter(|&&last| last < packed.len()) {
        assert_eq!(packed[last..last + 8], *b"\x50\x2a\x4d\x18\x04\0\0\0");
        let len = u32::from_le_bytes(packed[last + 8..last + 12].try_into().unwrap());
        at.push(last + 12 + len as usize);
    }
    at
}

/// Goal: many frames, which are made and read at once, are the image; the same as one stream, as older versions wrote it, too.
/// What lacks a frame, or has one too many, is noticed. Method: contents that do not compress.
#[test]
fn packed_in_frames() {
    let scratch = Scratch::new("frames");
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(20 << 20)
    .collect();
    std::fs::write(scratch.path("noise"), &noise).unwrap();
    scratch.good(&["import", "-q", &scratch.path("noise"), &scratch.place("/noise")], b"");
    let (image, back) = (scratch.path("i"), scratch.path("back"));
    let restored = |packed: &[u8]| {
        scratch.good(&["restore", "-q", "--force", "-", &back], packed);
        assert!(std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap());
        std::fs::remove_file(&back).unwrap();
    };
    let bytes = scratch.good(&["pack", "-q", &image, "-"], b"");
    let frames = frames(&bytes);
    assert!(frames.len() > 10, "{frames:?}");
    restored(&bytes);
    let (head, stream) = (&bytes[..24], zstd::decode_all(&bytes[24..]).unwrap());
    restored(&[head, &zstd::encode_all(&stream[..], 1).unwrap()].concat());
    let count = frames.len();
    let refused = |parts: &[&[u8]]| scratch.refused(&["restore", "-", &back], &parts.concat(), "damaged");
    refused(&[&bytes[..frames[count - 2]]]);
    refused(&[&bytes[..frames[3]], &bytes[frames[4] + 1..]]);
    refused(&[&bytes, &bytes[frames[3]..frames[4]]]);
    refused(&[&bytes, b"more"]);
    let mut damaged = bytes.clone();
    damaged[frames[4] + 1000] ^= 4;
    refused(&[&damaged]);
    assert!(!Path::new(&back).exists() && !Path::new(&format!("{back}.part")).exists());
}

/// Goal: `doctor` says what is there, for people and for programs, and knows a program by name.
#[test]
fn doctor() {
    let scratch = Scratch::new("doctor");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bypath"));
        let output = command.args(args).env("BYPATH_PRELOAD", scratch.path("i")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = run(&["doctor"]);
    assert!(code.is_some_and(|code| code < 2) && text.contains("shared cache") && text.contains("fuse"), "{text}");
    let (_, text) = run(&["doctor", "--json", "sh", "-c", "exit 9"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["machine"].as_array().unwrap().len() > 5 && report["program"]["is_static"].is_boolean(), "{text}");
    assert_eq!(run(&["doctor", "no-such-program-anywhere"]).0, Some(127));
    let (code, text) = run(&["clean", "--json"]);
    assert_eq!(code, Some(0));
    assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_array(), "{text}");
}

/// Goal: what is in a squashfs image comes, however it is compressed; what is none, or damaged, is refused. Method: one of
/// each compression by mksquashfs, where it is installed.
#[test]
fn squashfs() {
    let scratch = Scratch::new("squashfs");
    let tree = scratch.path("tree");
    std::fs::create_dir_all(format!("{tree}/below")).unwrap();
    let text: Vec<u8> = (0..600_000u32).flat_map(|number| number.to_le_bytes()).collect();
    std::fs::write(format!("{tree}/below/large"), &text).unwrap();
    std::fs::write(format!("{tree}/small"), "contents").unwrap();
    std::os::unix::fs::symlink("below/large", format!("{tree}/link")).unwrap();
    for compression in ["gzip", "xz", "zstd"] {
        let squashfs = scratch.path(compression);
        let made = Command::new("mksquashfs").args([&tree, &squashfs, "-comp", compression, "-no-progress", "-quiet"]).output();
        let Ok(made) = made else {
            println!("skip squashfs: mksquashfs is not installed: NOT tested");
            return;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let target = format!("/{compression}");
        scratch.good(&["import", "-q", "--unpack", &squashfs, &scratch.place(&target)], b"");
        assert!(scratch.cat(&format!("{target}/below/large")) == text, "{compression}");
        assert_eq!(scratch.cat(&format!("{target}/small")), b"contents");
        assert_eq!(scratch.cat(&format!("{target}/link")), text);
        let bytes = std::fs::read(&squashfs).unwrap();
        scratch.good(&["import", "-q", "-", &scratch.place(&format!("{target}-stream"))], &bytes);
        assert_eq!(scratch.cat(&format!("{target}-stream/small")), b"contents");
        let cut = scratch.path("cut");
        std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        scratch.refused(&["import", "-q", "--unpack", &cut, &scratch.place("/cut")], b"", "squashfs");
    }
}
