//! Goal: what one process does, another sees with its next call.
//! Method: two processes take turns through shared words; each looks for what
//! the other has just done.

use super::{Image, expect, wait_all};
use crate::differential::sandbox::spawn;
use crate::image::check;
use crate::shared::Words;
use std::time::Duration;

const TURN: usize = 0;

/// Takes `rounds` turns.
pub fn visible(rounds: u64) -> Result<String, String> {
    let image = Image::new("visible", 256 << 20);
    let words = Words::new();
    let wait = move |turn: u64| {
        if words.wait(TURN, turn, Duration::from_secs(60)) { Ok(()) } else { Err(format!("turn {turn} never came")) }
    };
    let actor = spawn(|watch| {
        let world = image.world();
        for round in 0..rounds {
            watch.step(round as usize);
            let (name, other) = (format!("/f{round}"), format!("/g{round}"));
            let fd = world.open(&name, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR);
            expect(fd as isize, || format!("create {name}"))?;
            words.set(TURN, round * 8 + 1);
            wait(round * 8 + 2)?;
            expect(world.write(fd, &round.to_ne_bytes()), || "write".into())?;
            words.set(TURN, round * 8 + 3);
            wait(round * 8 + 4)?;
            expect(world.rename(&name, &other), || "rename".into())?;
            words.set(TURN, round * 8 + 5);
            wait(round * 8 + 6)?;
            expect(world.unlink(&other), || "unlink".into())?;
            expect(world.close(fd), || "close".into())?;
            words.set(TURN, round * 8 + 7);
            wait(round * 8 + 8)?;
        }
        Ok(())
    });
    let watcher = spawn(|watch| {
        let world = image.world();
        for round in 0..rounds {
            watch.step(round as usize);
            let (name, other) = (format!("/f{round}"), format!("/g{round}"));
            let size = |path: &str| world.stat(path).map(|s| s.st_size);
            let want = |what: &str, path: &str, wanted: Result<i64, isize>| {
                let seen = size(path);
                if seen == wanted {
                    Ok(())
                } else {
                    Err(format!("round {round}, after {what}: {path} is {seen:?}, not {wanted:?}"))
                }
            };
            wait(round * 8 + 1)?;
            want("creation", &name, Ok(0))?;
            want("creation", &other, Err(-2))?;
            words.set(TURN, round * 8 + 2);
            wait(round * 8 + 3)?;
            want("a write", &name, Ok(8))?;
            let fd = world.open(&name, libc::O_RDONLY);
            let mut data = [0; 8];
            if world.pread(fd, &mut data, 0) != 8 || u64::from_ne_bytes(data) != round {
                return Err(format!("round {round}: read {data:?}"));
            }
            words.set(TURN, round * 8 + 4);
            wait(round * 8 + 5)?;
            want("rename", &name, Err(-2))?;
            want("rename", &other, Ok(8))?;
            words.set(TURN, round * 8 + 6);
            wait(round * 8 + 7)?;
            want("unlink", &other, Err(-2))?;
            // Still open here: unlinked, and whole.
            if world.pread(fd, &mut data, 0) != 8 || u64::from_ne_bytes(data) != round {
                return Err(format!("round {round}: read after unlink {data:?}"));
            }
            expect(world.close(fd), || "close".into())?;
            words.set(TURN, round * 8 + 8);
        }
        Ok(())
    });
    wait_all(vec![actor, watcher], 20)?;
    let report = check(image.path())?;
    if report.files != 1 {
        return Err(format!("{} files are left", report.files));
    }
    Ok(format!("{rounds} rounds: every change was seen at once"))
}
