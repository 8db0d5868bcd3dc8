//! What `--mount` and `bypath.toml` can say.
//!
//! ```text
//! IMG:/point            an image
//! new:SIZE:/point       an image that is made, and goes with the session
//! host:/dir:/point      a directory of the kernel's
//! fuse:CMD ARG… @:/point   a FUSE daemon; @ stands for the mount point it is given
//! ceph:[MON,…][/dir]:/point   a cluster, by ceph-fuse
//! plugin:LIB.so,ARG…:/point   a library with a struct fuse_operations
//! s3:http://HOST/BUCKET:/point   a bucket
//! objects:SERVICE?OPTION=VALUE:/point   another store of objects
//! ```
//! each perhaps with `,option,…` behind it.

mod ceph;
mod colon;
pub mod known;

use super::transport::Transport;
use crate::failure::{Failure, Result};
use crate::place::{check_point, normalise, split};
use crate::size;
use base::Atomic;
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use writeback::Conflict;

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The image file, absolute.
    Image(PathBuf),
    /// An image of the session's own, of so many bytes at most.
    New(u64),
    /// The directory, canonical.
    Host(PathBuf),
    /// A command and its arguments.
    Fuse(Vec<OsString>),
    /// The library, absolute, and its arguments.
    Plugin(PathBuf, Vec<OsString>),
    /// A store of objects, as it was written.
    Objects(String),
}

impl Source {
    /// As a person wrote it, in short.
    pub fn shown(&self) -> String {
        match self {
            Source::Image(path) => path.display().to_string(),
            Source::New(limit) => format!("new:{}", size::show(*limit)),
            Source::Host(path) => format!("host:{}", path.display()),
            Source::Fuse(words) => format!("fuse:{}", words.join(OsStr::new(" ")).display()),
            Source::Plugin(path, _) => format!("plugin:{}", path.display()),
            Source::Objects(address) => address.clone(),
        }
    }
}

/// How.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Nothing can be changed.
    pub read_only: bool,
    /// A daemon that dies is started again.
    pub restart: bool,
    /// How long a daemon may take for an answer, seconds.
    pub timeout: Option<u32>,
    /// Most memory that parts of a daemon's files may take, bytes.
    pub pages: Option<u64>,
    /// Where a daemon's output goes.
    pub log: Option<PathBuf>,
    /// How a daemon gets its requests, where it is not to be found out.
    pub transport: Option<Transport>,
    /// Permissions of a daemon's files are checked here.
    pub default_permissions: bool,
    /// Other users of the session are served too.
    pub allow_other: bool,
    /// Nothing waits for the medium.
    pub unsynced: bool,
    /// `fsync` has nothing to wait for once a change is in the cache image.
    pub sync_image: bool,
    /// `fsync` waits for a journal.
    pub sync_journal: bool,
    /// What becomes of a file that others have changed below while it is newer here.
    pub conflict: Option<Conflict>,
    /// Where the journal lies, if that is said.
    pub journal: Option<CacheImage>,
    /// Overwrites in an image happen whole or not at all.
    pub atomic: Option<Atomic>,
    /// What stands in front of a directory.
    pub cache: Option<CacheImage>,
    /// Size of a cache image that is made for the session, bytes, if there is one.
    pub own_cache: Option<u64>,
    /// How soon what others change in it is seen.
    pub actimeo: Actimeo,
    /// For how long the cache is kept fresh after the session, seconds.
    pub linger: Option<u32>,
    /// Attributes are kept with objects.
    pub posix: bool,
    /// A small file that is closed goes to the store of objects later.
    pub close_later: bool,
    /// Where files of a store of objects lie while they are written, absolute.
    pub spool: Option<PathBuf>,
}

/// A cache image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheImage {
    /// The image file, absolute.
    pub path: PathBuf,
    /// How large it is made if it is missing, bytes.
    pub size: u64,
}

/// Size of a cache image, bytes, where no option says otherwise.
const CACHE_SIZE: u64 = 1 << 30;
/// Size of a journal, likewise.
pub const JOURNAL_SIZE: u64 = writeback::journal::SIZE;

impl CacheImage {
    /// `IMG` or `IMG:SIZE`.
    fn parse(text: &str) -> std::result::Result<CacheImage, String> {
        CacheImage::split(text, "an image, such as cache=/dev/shm/data.img:2G", CACHE_SIZE, size::parse_image)
    }

    /// `PATH` or `PATH:SIZE` of a journal.
    fn parse_journal(text: &str) -> std::result::Result<CacheImage, String> {
        CacheImage::split(text, "a file, such as journal=/var/lib/data.j", JOURNAL_SIZE, size::parse)
    }

    fn split(
        text: &str,
        example: &str,
        usual: u64,
        parse: fn(&str) -> std::result::Result<u64, String>,
    ) -> std::result::Result<CacheImage, String> {
        let (path, size) = match text.rsplit_once(':').map(|(path, size)| (path, parse(size))) {
            Some((path, Ok(size))) => (path, size),
            Some((_, Err(help))) => return Err(help),
            None => (text, usual),
        };
        if path.is_empty() {
            return Err(format!("name {example}"));
        }
        let path = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(CacheImage { path, size })
    }
}

/// How soon changes by others are seen through a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Actimeo {
    /// As soon as the kernel tells of them, or within seconds where it does not.
    #[default]
    Told,
    /// Within so many seconds, or ten times as long as a look at all that is here takes.
    Seconds(u32),
    /// Nobody else changes anything.
    Never,
}

impl Options {
    fn parse(words: &str, source: &Source, shown: &str) -> Result<Options> {
        let mut options = Options::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            if let Some(known) = known::instead_of(word, source) {
                return Err(Failure::new(format!("--mount '{shown}': unknown option '{word}'; use one of {known}")));
            }
            options.take(word).map_err(|help| Failure::new(format!("--mount '{shown}': {word}: {help}")))?;
        }
        options.agree(shown)?;
        Ok(options)
    }

    /// Takes an option that the kind of mount has; what is wrong with its value.
    fn take(&mut self, word: &str) -> std::result::Result<(), String> {
        let file = |path: &str| std::path::absolute(path).map_err(|_| "name a file".to_string());
        match word.split_once('=').unwrap_or((word, "")) {
            ("ro", _) => self.read_only = true,
            ("rw", _) => self.read_only = false,
            ("restart", _) => self.restart = true,
            ("default_permissions", _) => self.default_permissions = true,
            ("allow_other", _) => self.allow_other = true,
            ("posix", _) => self.posix = true,
            ("atomic", how) => self.atomic = Atomic::from_name(how.as_bytes()),
            ("conflict", how) => self.conflict = Conflict::from_name(how),
            ("carrier", how) => self.transport = Transport::from_name(how),
            ("sync", "none") => self.unsynced = true,
            ("sync", when) => (self.sync_image, self.sync_journal) = (when == "image", when == "journal"),
            ("close", when) => self.close_later = when == "later",
            ("cache", "") if word == "cache" => self.own_cache = Some(CACHE_SIZE),
            ("cache", rest) => match rest.strip_prefix(':') {
                Some(size) => self.own_cache = Some(size::parse_image(size)?),
                None => self.cache = Some(CacheImage::parse(rest)?),
            },
            ("journal", rest) => self.journal = Some(CacheImage::parse_journal(rest)?),
            ("spool", path) => self.spool = Some(file(path)?),
            ("log", path) => self.log = Some(file(path)?),
            ("pages", pages) => self.pages = Some(size::parse(pages)?),
            ("timeout", seconds) => self.timeout = Some(self::seconds(seconds).ok_or("write seconds, 1 to 86400")?),
            ("linger", seconds) => self.linger = Some(self::seconds(seconds).ok_or("write seconds, 1 to 86400")?),
            ("actimeo", "max") => self.actimeo = Actimeo::Never,
            ("actimeo", seconds) => {
                let seconds = self::seconds(seconds).ok_or("write seconds, 1 to 86400, or max")?;
                self.actimeo = Actimeo::Seconds(seconds);
            }
            _ => return Err("it is listed, and nothing takes it".to_string()),
        }
        Ok(())
    }

    /// Refuses options that exclude each other, or lack one that they need.
    fn agree(&self, shown: &str) -> Result<()> {
        let wrong = |text: String| Err(Failure::new(format!("--mount '{shown}': {text}")));
        let is_cached = self.cache.is_some() || self.own_cache.is_some();
        let is_timed = self.actimeo != Actimeo::default();
        let alone = [("allow_other", self.allow_other), ("sync=none", self.unsynced)];
        let behind = [("sync=image", self.sync_image), ("sync=journal", self.sync_journal), ("actimeo=", is_timed)];
        let mut behind = behind.into_iter().chain([("conflict=", self.conflict.is_some())]);
        if self.cache.is_some() && self.own_cache.is_some() {
            return wrong("cache= given twice; a mount has one cache".into());
        }
        if let Some((word, _)) = alone.into_iter().find(|(_, is_given)| is_cached && *is_given) {
            return wrong(format!("{word} cannot be combined with cache="));
        }
        if let Some((word, _)) = behind.find(|(_, is_given)| !is_cached && *is_given) {
            return wrong(format!("{word} needs cache="));
        }
        if self.linger.is_some() && (self.cache.is_none() || self.sync_journal) {
            return wrong("linger= needs a cache image with a name, cache=IMG, and no sync=journal".into());
        }
        if self.journal.is_some() && !self.sync_journal {
            return wrong("journal= needs sync=journal".into());
        }
        Ok(())
    }
}

/// Seconds, a day at most.
fn seconds(text: &str) -> Option<u32> {
    text.parse().ok().filter(|seconds| (1..=86400).contains(seconds))
}

/// What one `--mount` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What.
    pub source: Source,
    /// Where it is seen: absolute, without `.`, `..` and superfluous slashes.
    pub point: Vec<u8>,
    /// How.
    pub options: Options,
}

impl Mount {
    /// Parses `SPEC:/point[,option…]` and checks that it can be had.
    pub fn parse(text: &OsStr) -> Result<Mount> {
        let shown = text.display().to_string();
        let bytes = text.as_bytes();
        let kinds = [&b"host:"[..], b"fuse:", b"ceph:", b"plugin:", b"new:", b"s3:", b"objects:"];
        let kind = kinds.into_iter().find(|kind| bytes.starts_with(kind));
        let Some(kind) = kind else {
            let (image, rest) = split(text).ok_or_else(|| {
                Failure::new(format!(
                    "--mount '{shown}' is not of the form IMG:/dir, such as work.img:/bp; the directory must be absolute"
                ))
            })?;
            let image = std::path::absolute(&image).map_err(|error| Failure::io(image.display(), &error))?;
            return Mount::new(Source::Image(image), &rest, &shown);
        };
        let form = match kind {
            b"host:" => "host:/dir:/point, such as host:/srv/data:/data",
            b"new:" => "new:SIZE:/point, such as new:1G:/bp",
            b"fuse:" => "'fuse:COMMAND ARG… @:/point', such as 'fuse:squashfuse a.squashfs @:/a'",
            b"s3:" => "s3:http://HOST[:PORT]/BUCKET[/PREFIX]:/point, such as s3:http://127.0.0.1:9000/data:/data",
            b"objects:" => "objects:SERVICE?OPTION=VALUE&…:/point, such as 'objects:fs?root=/srv/data:/data'",
            b"ceph:" => {
                "ceph:[MON,…][/dir]:/point[,conf=FILE,name=USER,keyring=FILE], such as ceph:10.0.0.1/home:/c or ceph:/:/c"
            }
            _ => "plugin:LIB.so,ARG…:/point, such as plugin:./hello.so:/hello",
        };
        let body = &bytes[kind.len()..];
        let has_schemes = matches!(kind, b"fuse:" | b"s3:" | b"objects:");
        let is_cut = |&cut: &usize| body[cut..].starts_with(b":/") && !(has_schemes && is_scheme(body, cut));
        let cut = (1..body.len()).rev().find(is_cut);
        let cut = cut.ok_or_else(|| Failure::new(format!("--mount '{shown}' is not of the form {form}")))?;
        if kind == b"ceph:" {
            let (point, options) = at_comma(&body[cut + 1..]);
            let (words, others) = ceph::command(&body[..cut], &String::from_utf8_lossy(options), &shown)?;
            let mount = Mount::new(Source::Fuse(words), &[point, b",", others.as_bytes()].concat(), &shown)?;
            return ceph::must_be_there(&shown).map(|()| mount);
        }
        let source = source(kind, OsStr::from_bytes(&body[..cut]), &shown)?;
        Mount::new(source, &body[cut + 1..], &shown)
    }

    fn new(source: Source, rest: &[u8], shown: &str) -> Result<Mount> {
        let (point, words) = at_comma(rest);
        let words = String::from_utf8_lossy(words).into_owned();
        let options = Options::parse(&words, &source, shown)?;
        colon::refuse(&source, point, shown)?;
        let point = normalise(point).ok_or_else(|| {
            Failure::new(format!("--mount '{shown}': the directory may not hold '.' or '..'; write its plain path"))
        })?;
        if point == b"/" {
            return Err(Failure::new(format!(
                "--mount '{shown}': the root of everything can't be covered; choose a directory such as /bp"
            )));
        }
        check_point(&point)?;
        Ok(Mount { source, point, options })
    }

    /// The mount point, for people.
    pub fn shown_point(&self) -> String {
        String::from_utf8_lossy(&self.point).into_owned()
    }
}

/// Whether the colon at `cut` is that of an address (`http://…`), and not the one before the mount point.
fn is_scheme(body: &[u8], cut: usize) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let len = body[..cut].iter().rev().take_while(|byte| is_part(byte)).count();
    let before = body[..cut - len].last();
    body[cut..].starts_with(b"://") && len > 0 && before.is_none_or(|byte| b" \t\n'\"=,".contains(byte))
}

/// A mount point and the options behind it.
fn at_comma(rest: &[u8]) -> (&[u8], &[u8]) {
    let comma = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
    (&rest[..comma], rest.get(comma + 1..).unwrap_or(b""))
}

fn source(kind: &[u8], text: &OsStr, shown: &str) -> Result<Source> {
    match kind {
        b"s3:" | b"objects:" => {
            let text = text.to_str().ok_or_else(|| Failure::new(format!("--mount '{shown}': an address is UTF-8")))?;
            Ok(Source::Objects(format!("{}{text}", String::from_utf8_lossy(kind))))
        }
        b"host:" => {
            let path = std::fs::canonicalize(text).map_err(|error| Failure::io(text.display(), &error))?;
            if !path.is_dir() {
                return Err(Failure::new(format!("{}: not a directory; host: takes one", path.display())));
            }
            Ok(Source::Host(path))
        }
        b"new:" => {
            let limit = size::parse_image(&text.to_string_lossy());
            Ok(Source::New(limit.map_err(|help| Failure::new(format!("--mount '{shown}': {help}")))?))
        }
        b"fuse:" => {
            let words =
                words(text.as_bytes()).ok_or_else(|| Failure::new(format!("--mount '{shown}': a quote is not closed")))?;
            if words.is_empty() {
                return Err(Failure::new(format!("--mount '{shown}': no command; write 'fuse:COMMAND ARG… @:/point'")));
            }
            if !words.iter().any(|word| word == "@") {
                return Err(Failure::new(format!("--mount '{shown}': the command has no '@', which stands for its mount point")));
            }
            Ok(Source::Fuse(words))
        }
        _ => {
            let mut parts = text.as_bytes().split(|&b| b == b',').map(|part| OsString::from_vec(part.to_vec()));
            let library = PathBuf::from(parts.next().unwrap_or_default());
            let path = std::fs::canonicalize(&library).map_err(|error| Failure::io(library.display(), &error))?;
            Ok(Source::Plugin(path, parts.collect()))
        }
    }
}

/// Splits at blanks; quotes (`'` and `"`) and backslashes keep what they keep in a shell.
fn words(text: &[u8]) -> Option<Vec<OsString>> {
    let (mut words, mut word, mut inside, mut quote) = (Vec::new(), Vec::new(), false, 0u8);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if quote != b'\'' => {
                word.push(bytes.next()?);
                inside = true;
            }
            _ if quote != 0 && byte == quote => quote = 0,
            _ if quote != 0 => word.push(byte),
            b'\'' | b'"' => (quote, inside) = (byte, true),
            b' ' | b'\t' | b'\n' => {
                if std::mem::take(&mut inside) {
                    words.push(OsString::from_vec(std::mem::take(&mut word)));
                }
            }
            _ => {
                word.push(byte);
                inside = true;
            }
        }
    }
    if inside {
        words.push(OsString::from_vec(word));
    }
    (quote == 0).then_some(words)
}

/// A `bypath.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    mount: Vec<Listed>,
}

/// One `[[mount]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    source: String,
    at: String,
    #[serde(default)]
    options: Vec<String>,
}

/// The mounts that a file lists; relative paths in it are relative to where `bypath` runs.
pub fn from_file(path: &Path) -> Result<Vec<Mount>> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(&shown, &error))?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
        Failure::new(format!("{shown}: line {line}: {}", error.message().replace('\n', " ")))
    })?;
    file.mount
        .iter()
        .map(|one| {
            let options: String = one.options.iter().map(|option| format!(",{option}")).collect();
            Mount::parse(OsStr::new(&format!("{}:{}{options}", one.source, one.at)))
                .map_err(|failure| Failure::new(format!("{shown}: {failure}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Mount> {
        Mount::parse(OsStr::new(text))
    }

    /// Goal: every form is understood; points are plain absolute directories.
    #[test]
    fn forms() {
        let mount = parse("/i.img://bp/x/,ro").unwrap();
        assert_eq!((&mount.source, &mount.point[..]), (&Source::Image("/i.img".into()), &b"/bp/x"[..]));
        assert!(mount.options.read_only);
        assert_eq!(parse("new:1G:/bp").unwrap().source, Source::New(1 << 30));
        assert_eq!(parse("/i.img:/bp,atomic=undo").unwrap().options.atomic, Some(Atomic::Undo));
        assert_eq!(parse("new:1G:/bp,atomic=replay").unwrap().options.atomic, Some(Atomic::Replay));
        assert_eq!(parse("host:/etc/..:/h").unwrap().source, Source::Host("/".into()));
        let mount = parse("fuse:sshfs 'a b':/x @ -o 'q=\"1\"':/s,restart,timeout=5").unwrap();
        let words = ["sshfs", "a b:/x", "@", "-o", "q=\"1\""].map(OsString::from).to_vec();
        assert_eq!((mount.source, &mount.point[..]), (Source::Fuse(words), &b"/s"[..]));
        assert_eq!(mount.options, Options { restart: true, timeout: Some(5), ..Options::default() });
        assert_eq!(parse("fuse:x @:/x,pages=8M").unwrap().options.pages, Some(8 << 20));
        assert_eq!(parse("fuse:x @:/x,cache=/c.img,actimeo=9").unwrap().options.actimeo, Actimeo::Seconds(9));
        for own in ["host:/etc:/h,cache", "host:/etc:/h,cache=:1G", "fuse:x @:/x,cache", "s3://b:/dir,cache"] {
            assert_eq!(parse(own).unwrap().options, Options { own_cache: Some(1 << 30), ..Options::default() }, "{own}");
        }
        let s3 = parse("s3:http://h:7070/b/p:/dir,timeout=5,spool=/var/tmp").unwrap();
        assert_eq!((s3.source, &s3.point[..]), (Source::Objects("s3:http://h:7070/b/p".into()), &b"/dir"[..]));
        assert_eq!((s3.options.timeout, s3.options.spool), (Some(5), Some("/var/tmp".into())));
        assert_eq!(parse("s3://b:/dir").unwrap().source, Source::Objects("s3://b".into()));
        assert_eq!(parse("objects:fs?root=/r:/dir").unwrap().source, Source::Objects("objects:fs?root=/r".into()));
        assert_eq!(parse("fuse:x http://h/ @:/x").unwrap().point, b"/x");
        let options = Options { transport: Some(Transport::Socket), default_permissions: true, ..Options::default() };
        assert_eq!(parse("fuse:x @:/x,carrier=socket,default_permissions").unwrap().options, options);
    }

    /// Goal: what can't be had is refused, in one line.
    #[test]
    fn refused() {
        for wrong in [
            "i.img",
            "i.img:bp",
            "i.img:/",
            "i.img:/a/../b",
            "i.img:/etc/passwd",
            "i.img:/etc/passwd/x",
            "i.img:/agents/7:/work",
            "i.img:/:/work",
            "i.img:/s3://b/x",
            "i.img:/work:ro",
            "i.img:/work:/",
            "i.img:/a,what",
            "i.img:/a,restart",
            "i.img:/a,cache=byvfs",
            "i.img:/a,allow_other",
            "new:1G",
            "new:/bp",
            "new:1K:/bp",
            "new:much:/bp",
            "host:/etc",
            "host:/nonexistent:/h",
            "host:/etc/passwd:/h",
            "fuse::/f",
            "fuse:true:/f",
            "fuse:true @",
            "fuse:'true @:/f",
            "fuse:true @:/f,timeout=0",
            "fuse:true @:/f,carrier=pigeon",
            "host:/etc:/h,carrier=socket",
            "host:/etc:/h,sync=never",
            "host:/etc:/h,cache=",
            "host:/etc:/h,cache=c.img:1",
            "host:/etc:/h,cache=:1",
            "host:/etc:/h,cache,cache=c.img",
            "i.img:/a,cache",
            "host:/etc:/h,cache=c.img,sync=none",
            "host:/etc:/h,cache=c.img,actimeo=0",
            "host:/etc:/h,actimeo=1",
            "host:/etc:/h,sync=image",
            "fuse:true @:/f,actimeo=1",
            "fuse:true @:/f,cache=c.img,allow_other",
            "i.img:/a,cache=c.img",
            "fuse:true @:/f,sync=none",
            "i.img:/a,sync=none",
            "i.img:/a,atomic",
            "i.img:/a,atomic=always",
            "host:/etc:/h,atomic=undo",
            "plugin:/nonexistent.so:/p",
            "s3:http://h:7070/b",
            "s3:http://h:7070/b,timeout=5",
            "s3://b",
            "s3:/b",
            "fuse:x http://h/ @",
            "fuse:x url=http://h/ @",
            "s3:http://h/b:/p,carrier=socket",
            "s3:http://h/b:/p,what",
            "host:/etc:/h,spool=/tmp",
        ] {
            let failure = parse(wrong).expect_err(wrong);
            assert!(!failure.to_string().contains('\n'), "{failure}");
        }
    }
}
