//! Where the files are: a directory of the kernel's, file systems on loop devices where there are such, images.

use super::Options;
use super::way::Way;
use crate::stage::kind_of;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of an image, and of a loop device's file.
const BYTES: u64 = 4 << 30;

/// A way, and what it leaves to be taken away.
pub struct Medium {
    /// How it is called.
    pub way: Way,
    _made: Option<Loop>,
}

/// A file system of the kernel's on a loop device.
struct Loop {
    point: PathBuf,
    file: PathBuf,
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
        let _ = std::fs::remove_dir(&self.point);
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Removed at the end, after the mounts below it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// For the kernel's files or for images, which may be in the same directory.
    fn new(dir: &Path, what: &str) -> Result<Scratch, String> {
        let path = dir.join(format!("bypath-bench-melo-{what}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn quiet(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A file system of this kind in a file; why not, if not.
fn on_a_loop(kind: &str, scratch: &Path) -> Result<Loop, String> {
    let mkfs = format!("mkfs.{kind}");
    if !quiet(Command::new(&mkfs).arg("-V")) {
        return Err(format!("{kind}: no {mkfs} here"));
    }
    let (file, point) = (scratch.join(format!("{kind}.img")), scratch.join(kind));
    let made = std::fs::File::create(&file).and_then(|file| file.set_len(BYTES)).and_then(|()| std::fs::create_dir(&point));
    made.map_err(|error| format!("{kind}: {error}"))?;
    let made = Loop { point, file };
    if !quiet(Command::new(&mkfs).args(["-q"]).arg(&made.file)) {
        return Err(format!("{kind}: {mkfs} failed"));
    }
    if !quiet(Command::new("mount").args(["-o", "loop"]).arg(&made.file).arg(&made.point)) {
        return Err(format!("{kind}: cannot be mounted on a loop device here"));
    }
    Ok(made)
}

fn image(name: &str, dir: &Path, options: &CStr) -> Result<Medium, String> {
    let path = dir.join(format!("{}.img", name.replace([' ', ','], "-")));
    let text = [path.as_os_str().as_encoded_bytes(), b"\0"].concat();
    engine::mkfs::make(&text, &engine::mkfs::Options { limit: BYTES, ..Default::default() })
        .map_err(|error| error.to_string())?;
    Ok(Medium { way: Way::image(name, &path, options)?, _made: None })
}

/// All media, in the order of the table's columns; what was left out, and why. The directories that they are in go last.
pub fn open(options: &Options) -> Result<(Media, Vec<String>), String> {
    let (disk, memory) = (Scratch::new(&options.directory, "files")?, Scratch::new(&options.image_dir, "images")?);
    let (mut media, mut left_out) = (Vec::new(), Vec::new());
    let kind = kind_of(&disk.0);
    for (name, syncs) in [(kind.clone(), true), (format!("{kind}, no syncs"), false)] {
        let root = disk.0.join(if syncs { "syncs" } else { "none" });
        std::fs::create_dir(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        media.push(Medium { way: Way::directory(&name, &root, syncs), _made: None });
    }
    for kind in ["xfs", "btrfs"] {
        match on_a_loop(kind, &disk.0) {
            Ok(made) => {
                let root = made.point.clone();
                media.push(Medium { way: Way::directory(kind, &root, true), _made: Some(made) });
                let below = root.join("none");
                std::fs::create_dir(&below).map_err(|error| format!("{}: {error}", below.display()))?;
                media.push(Medium { way: Way::directory(&format!("{kind}, no syncs"), &below, false), _made: None });
            }
            Err(why) => left_out.push(why),
        }
    }
    for (name, options) in [("image", c""), ("image, undo", c"atomic=undo"), ("image, replay", c"atomic=replay")] {
        media.push(image(name, &memory.0, options)?);
    }
    Ok((Media { media, _scratch: [disk, memory] }, left_out))
}

/// The media, and the directories that they are in.
pub struct Media {
    media: Vec<Medium>,
    _scratch: [Scratch; 2],
}

impl std::ops::Deref for Media {
    type Target = [Medium];
    fn deref(&self) -> &[Medium] {
        &self.media
    }
}
