//! Every SPEC and every option of `--mount`, once: what is accepted, what a refusal lists, `run --help`, the manual and the
//! tables of `docs/reference/commands.md` are made of these lists.

use super::Source;
use std::fmt::Write;

/// A kind of SPEC, as a bit: an option names the kinds that take it.
type Kinds = u8;
const IMAGE: Kinds = 1;
const HOST: Kinds = 2;
const FUSE: Kinds = 4;
const CEPH: Kinds = 8;
const PLUGIN: Kinds = 16;
const OBJECTS: Kinds = 32;
const DAEMONS: Kinds = FUSE | CEPH | OBJECTS;
const CACHED: Kinds = HOST | DAEMONS;
const ALL: Kinds = IMAGE | CACHED | PLUGIN;

/// A kind of SPEC in the tables.
const NAMES: [(Kinds, &str); 6] =
    [(IMAGE, "images"), (HOST, "host:"), (FUSE, "fuse:"), (CEPH, "ceph:"), (PLUGIN, "plugin:"), (OBJECTS, "s3:, objects:")];

/// A form of SPEC and what it mounts.
struct Form(&'static str, &'static str);

const FORMS: [Form; 8] = [
    Form("IMG", "an image (`bypath mkfs`)"),
    Form("new:SIZE", "an image that is made for the session and removed with it"),
    Form("host:/dir", "a directory of the kernel"),
    Form("fuse:COMMAND ARG… @", "a FUSE daemon, unmodified, without the kernel's FUSE; @ stands for its mount point"),
    Form("ceph:[MON,…][/dir]", "a CephFS cluster, by ceph-fuse"),
    Form("plugin:LIB.so,ARG…", "a library with a struct fuse_operations (bypath_plugin.h), called in process"),
    Form(
        "s3:http://HOST/BUCKET",
        "a bucket, or s3://BUCKET for Amazon's, with /PREFIX; the keys come from where the AWS tools find them",
    ),
    Form("objects:SERVICE?…", "another object store: fs?root=/dir, memory"),
];

/// An option: how it is written (a capital word stands for a value), which kinds take it, what it does, and where the
/// documents say more.
struct Known {
    text: &'static str,
    kinds: Kinds,
    about: &'static str,
    #[cfg_attr(not(test), allow(dead_code, reason = "the documents are written by a test"))]
    more: &'static str,
}

const fn known(text: &'static str, kinds: Kinds, about: &'static str, more: &'static str) -> Known {
    Known { text, kinds, about, more }
}

const OPTIONS: [Known; 34] = [
    known("ro", ALL, "the mount is read-only", ""),
    known("rw", ALL, "the mount is writable (default)", ""),
    known(
        "atomic=undo",
        IMAGE,
        "an overwrite takes effect whole or not at all, by an undo log",
        "semantics.md#atomic-overwrites",
    ),
    known("atomic=replay", IMAGE, "the same, by a redo log", "semantics.md#atomic-overwrites"),
    known("allow_other", CACHED, "serve other users of the session too, within their permissions; not with a cache", ""),
    known("cache", CACHED, "put a cache image of 1 GiB in front of it, for this session", CACHE_PAGE),
    known("cache=:SIZE", CACHED, "the same, of this size", CACHE_PAGE),
    known("cache=IMG", CACHED, "put the cache image IMG in front of it; it is created if it is missing (1 GiB)", CACHE_PAGE),
    known("cache=IMG:SIZE", CACHED, "the same, created with this size", CACHE_PAGE),
    known("actimeo=SECONDS", CACHED, "compare the cache with what is behind it this often (1 to 86400)", CACHE_PAGE),
    known("actimeo=max", CACHED, "nothing else changes what is behind the cache: never compare", CACHE_PAGE),
    known(
        "linger=SECONDS",
        HOST,
        "with cache=IMG: keep the cache fresh for so long after the session (1 to 86400), so that the next one starts at once",
        CACHE_PAGE,
    ),
    known(
        "sync=backend",
        CACHED,
        "with a cache: fsync waits until the change is behind it, on stable storage (default)",
        CACHE_PAGE,
    ),
    known("sync=image", CACHED, "with a cache: fsync does not wait; the change is in the cache image", CACHE_PAGE),
    known("sync=journal", HOST, "with a cache: fsync waits for a journal on disk", CACHE_PAGE),
    known("journal=PATH", HOST, "with sync=journal: the journal's file", CACHE_PAGE),
    known("journal=PATH:SIZE", HOST, "the same, of this size (32 MiB)", CACHE_PAGE),
    known("conflict=both", HOST, "with a cache: a file that another program changed too is kept twice (default)", CACHE_PAGE),
    known("conflict=ours", HOST, "with a cache: the session's file replaces it", CACHE_PAGE),
    known("conflict=stop", HOST, "with a cache: it is left alone, and the session's file stays in the cache", CACHE_PAGE),
    known("sync=none", HOST, "without a cache: fsync and its kin check the descriptor and return; a crash can lose data", ""),
    known("restart", DAEMONS, "start the daemon again when it ends", ""),
    known("timeout=SECONDS", DAEMONS, "how long a request can take (60)", ""),
    known("pages=SIZE", DAEMONS, "memory for parts of its files (64M); 0 for none", ""),
    known("log=FILE", DAEMONS, "the file that gets the daemon's output", ""),
    known("default_permissions", FUSE | CEPH, "check permissions here, as the kernel's option of that name does", ""),
    known("carrier=memory", FUSE | CEPH, "pass requests through shared memory (default: automatic)", ""),
    known("carrier=socket", FUSE | CEPH, "pass requests through a socket, as a static daemon needs (default: automatic)", ""),
    known("conf=FILE", CEPH, "ceph-fuse's configuration file", ""),
    known("name=USER", CEPH, "ceph-fuse's user", ""),
    known("keyring=FILE", CEPH, "ceph-fuse's key ring", ""),
    known("spool=DIR", OBJECTS, "the directory of files that are being written ($TMPDIR, or /tmp)", OBJECTS_PAGE),
    known("posix", OBJECTS, "keep modes, owners, times and symlinks in the objects' metadata", "objects.md#posix"),
    known("close=later", OBJECTS, "close does not wait for the upload; close=stored does (default)", "objects.md#closelater"),
];

/// Forms of an option that its row speaks of.
const ALSO: [(&str, Kinds); 1] = [("close=stored", OBJECTS)];

const CACHE_PAGE: &str = "other-file-systems.md#a-directory-or-a-daemon-behind-a-cache-image";
const OBJECTS_PAGE: &str = "objects.md";

fn kinds_of(source: &Source) -> Kinds {
    match source {
        Source::Image(_) | Source::New(_) => IMAGE,
        Source::Host(_) => HOST,
        // The options of ceph-fuse have been taken out by then.
        Source::Fuse(_) => FUSE,
        Source::Plugin(..) => PLUGIN,
        Source::Objects(_) => OBJECTS,
    }
}

/// Whether `word` has the form of `text`: the same name, and a value where a capital word stands for one.
fn has_form(text: &str, word: &str) -> bool {
    match text.split_once('=') {
        None => word == text,
        Some((name, value)) if value.starts_with(|first: char| first.is_ascii_uppercase() || first == ':') => {
            word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
        }
        Some(_) => word == text,
    }
}

/// All that may stand where `word` does; empty if it is an option of `source`. One whose name is right and whose value is not
/// has only the values of that name listed.
pub fn instead_of(word: &str, source: &Source) -> Option<String> {
    let kinds = kinds_of(source);
    let taken = || OPTIONS.iter().map(|known| (known.text, known.kinds)).chain(ALSO).filter(|(_, of)| of & kinds != 0);
    if taken().any(|(text, _)| has_form(text, word)) {
        return None;
    }
    let name = word.split_once('=').map(|(name, _)| name);
    let named = |text: &&str| name.is_some() && text.split_once('=').map(|(name, _)| name) == name;
    let mut list: Vec<&str> = taken().map(|(text, _)| text).filter(|text| named(text)).collect();
    if list.is_empty() {
        list = taken().map(|(text, _)| text).collect();
    }
    Some(list.join(", "))
}

/// The options of images, for `bypath mount -o`.
pub fn of_images() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().filter(|known| known.kinds & IMAGE != 0).map(|known| known.text)
}

/// The kinds that take an option, for people.
fn shown(kinds: Kinds) -> String {
    match kinds {
        ALL => "all".to_string(),
        CACHED => "all but images and plugin:".to_string(),
        _ => NAMES.iter().filter(|(kind, _)| kinds & kind != 0).map(|(_, name)| *name).collect::<Vec<_>>().join(", "),
    }
}

/// What `run --help` says of `--mount`.
pub fn help() -> String {
    let mut text = "What is mounted where; several may be given, and one inside another. SPEC is one of\n\n".to_string();
    for Form(form, about) in &FORMS {
        let _ = writeln!(text, "  {form:<22}{about}");
    }
    let mut last = 0;
    for Known { text: option, kinds, about, .. } in &OPTIONS {
        if *kinds != last {
            let _ = writeln!(text, "\nOptions of {}:", shown(*kinds).trim_end_matches(':'));
            last = *kinds;
        }
        let _ = writeln!(text, "  {option:<22}{about}");
    }
    text.push_str(
        "\nAn image whose /DIR is an empty directory is also mounted there through FUSE while the session lasts, if /dev/fuse can be \
         used. Set-uid programs, other users and /proc need that mount; static programs run faster with it. `mkdir /DIR` first.",
    );
    text
}

/// The same as tables for the documents.
#[cfg(test)]
fn tables() -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut text = "| SPEC | what is mounted |\n|---|---|\n".to_string();
    for Form(form, about) in &FORMS {
        let _ = writeln!(text, "| `{form}` | {} |", cell(about));
    }
    text.push_str("\n| option | of | meaning |\n|---|---|---|\n");
    for Known { text: option, kinds, about, more } in &OPTIONS {
        let more = if more.is_empty() { String::new() } else { format!(" ([more]({more}))") };
        let _ = writeln!(text, "| `{option}` | {} | {}{more} |", shown(*kinds), cell(about));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use std::ffi::OsString;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");
    const MARKS: [&str; 2] = ["<!-- made by crates/cli/src/mounts/spec/known.rs -->\n", "<!-- end -->\n"];

    /// Goal: the documents have every SPEC and option that there is. With BYPATH_WRITE_DOCS=1 the page is written anew.
    #[test]
    fn documents() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once(MARKS[0]).unwrap();
        let (there, after) = rest.split_once(MARKS[1]).unwrap();
        if std::env::var_os("BYPATH_WRITE_DOCS").is_some() {
            std::fs::write(PAGE, [before, MARKS[0], &tables(), MARKS[1], after].concat()).unwrap();
        } else {
            assert!(
                there == tables(),
                "docs/reference/commands.md is not what the options are: BYPATH_WRITE_DOCS=1 cargo test -p bypath-cli"
            );
        }
    }

    fn sources() -> [Source; 5] {
        let fuse = Source::Fuse(vec![OsString::from("x")]);
        let objects = Source::Objects("s3://b".into());
        [Source::New(1), Source::Host("/".into()), fuse, Source::Plugin("/l".into(), Vec::new()), objects]
    }

    /// Words that have the form of an option.
    fn examples(text: &str) -> String {
        let replaced =
            [("SECONDS", "9"), ("SIZE", "64M"), ("IMG", "/i"), ("PATH", "/p"), ("FILE", "/f"), ("DIR", "/d"), ("USER", "u")];
        replaced.iter().fold(text.to_string(), |text, (word, value)| text.replace(word, value))
    }

    /// Goal: each option is taken by the kinds that its row names, with what it goes with, and by no other; each changes
    /// something.
    #[test]
    fn each_is_taken() {
        for known in &OPTIONS {
            let word = examples(known.text);
            for source in sources() {
                let of = kinds_of(&source) | if kinds_of(&source) == FUSE { CEPH } else { 0 };
                if known.kinds == CEPH {
                    continue;
                }
                let needs = match known.about {
                    about if about.starts_with("with sync=journal") || known.text.starts_with("journal=") => {
                        "cache,sync=journal,"
                    }
                    _ if known.text.starts_with("linger=") => "cache=/i,",
                    about if about.starts_with("with a cache") || known.text.starts_with("actimeo=") => "cache,",
                    _ => "",
                };
                let parsed = Options::parse(&format!("{needs}{word}"), &source, "m");
                assert_eq!(parsed.is_ok(), of & known.kinds != 0, "{word} of {source:?}: {parsed:?}");
                let is_default = matches!(known.text, "rw" | "sync=backend");
                if let (Ok(parsed), Ok(without), false) = (parsed, Options::parse(needs, &source, "m"), is_default) {
                    assert!(parsed != without, "{word} of {source:?} changes nothing");
                }
            }
        }
    }

    /// Goal: what is refused names the word and what may be written instead: values, where only the value is wrong.
    #[test]
    fn refusals() {
        let source = Source::Host("/".into());
        let message = |word: &str| Options::parse(word, &source, "m").unwrap_err().to_string();
        assert!(
            message("roo").contains("'roo'") && message("roo").contains("conflict=both") && message("roo").contains("ro, rw")
        );
        let message = message("sync=never");
        assert!(message.contains("sync=journal") && !message.contains("allow_other"), "{message}");
        let file = std::env::temp_dir().join(format!("bypath-known-{}.toml", std::process::id()));
        std::fs::write(&file, "[[mount]]\nsource = \"new:1G\"\nat = \"/bp\"\noptions = [\"roo\"]\n").unwrap();
        let message = super::super::from_file(&file).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(message.contains(".toml: ") && message.contains("unknown option 'roo'"), "{message}");
    }
}
