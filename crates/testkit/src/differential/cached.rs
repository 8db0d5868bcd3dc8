//! A cache image in front of a directory of the kernel's, as one side of a comparison.
//!
//! The first part of a sequence changes the directory itself, by the kernel, before the cache is asked: so there is
//! something to bring. The rest is done through the cache; between calls, some of them chosen by their text, there are
//! rounds that write back, looks at what is below, and contents that go to make room. In the end the directory is compared too.

use super::compare::{Clock, Tree, difference};
use super::op::{Arg, Op};
use super::run::Between;
use super::sandbox;
use super::side::{KernelElsewhere, Side};
use crate::world::World;
use base::{Cred, Cx, Thread};
use cache::{Cache, Changes, Origin};
use engine::Fs;
use engine::process::attach::Options;
use pm::sys::abi as nr;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use writeback::Writer;

/// Largest size of the image.
const BYTES: u64 = 1 << 30;
/// Rounds in which all must be below.
const ROUNDS: u32 = 5;
/// How long who writes back sleeps when nobody calls, nanoseconds; and if it is busy.
const SLEEP: (i64, i64) = (50_000_000, 300_000);

/// The directory, and the cache in front of it.
pub struct Cached {
    world: World,
    cache: &'static Cache,
    low: KernelElsewhere,
    /// Whether calls go to the cache; else to the directory.
    is_shown: Cell<bool>,
    looks: Sender<()>,
    looked: Receiver<Result<(), String>>,
    failure: Arc<Mutex<Option<String>>>,
}

fn cx(thread: &Thread) -> Cx<'_> {
    Cx { cred: Cred::ROOT, umask: 0, thread }
}

impl Cached {
    /// A new directory, and a new image, in this child's place; two threads that stay root. If `busy`, there are rounds all
    /// the time, in the middle of calls too.
    ///
    /// # Errors
    /// Whatever can't be made.
    pub fn start(busy: bool) -> Result<Cached, String> {
        let place = PathBuf::from(sandbox::root_of(std::process::id() as i32));
        let directory = place.join("low");
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&directory, all).map_err(|error| error.to_string())?;
        let cache = mount(&place.join("image"), &directory)?;
        let failure = Arc::new(Mutex::new(None));
        write_back(cache, failure.clone(), busy)?;
        let (looks, looked) = keep_fresh(cache);
        let low = KernelElsewhere::inside(&directory)?;
        Ok(Cached { world: World::new(cache), cache, low, is_shown: Cell::new(true), looks, looked, failure })
    }

    fn side(&self) -> &dyn Side {
        if self.is_shown.get() { &self.world } else { &self.low }
    }

    /// A round over all that is here, by whoever keeps it fresh.
    fn look(&self) -> Result<(), String> {
        self.looks.send(()).map_err(|error| error.to_string())?;
        self.looked.recv().map_err(|error| error.to_string())?
    }

    /// A round that writes back.
    fn round(&self) -> Result<(), String> {
        let done = self.cache.fs().want_round();
        let failure = self.failure.lock().map_err(|error| error.to_string())?.take();
        match (done, failure) {
            (_, Some(failure)) => Err(format!("a round: {failure}")),
            (done, None) => done.map_err(|error| format!("a round: {error:?}")),
        }
    }

    fn make_room(&self) -> Result<(), String> {
        let thread = Thread::new();
        let made = self.cache.make_room(&cx(&thread));
        self.cache.give_lane_back(&thread);
        made.map(drop).map_err(|error| format!("making room: {error:?}"))
    }

    fn is_clean(&self) -> Result<bool, String> {
        let thread = Thread::new();
        let status = writeback::Status::of(self.cache, &cx(&thread)).map_err(|error| error.to_string());
        self.cache.give_lane_back(&thread);
        status.map(|status| status.names + status.files == 0)
    }

    /// From here on calls go to the cache, or to the directory.
    fn show(&self, is_shown: bool) {
        let root = [Arg::Text(b"/".to_vec())];
        for side in [&self.world as &dyn Side, &self.low] {
            side.plain(nr::__NR_close_range, &[3, 800, 0]);
            side.call(nr::__NR_chdir as usize, &root);
        }
        self.is_shown.set(is_shown);
    }
}

impl Side for Cached {
    unsafe fn raw(&self, nr: usize, args: [usize; 6]) -> isize {
        // SAFETY: the caller's promise.
        unsafe { self.side().raw(nr, args) }
    }

    fn become_user(&self, user: u32) {
        self.low.become_user(user);
        self.world.become_user(user);
    }
}

impl Between for Cached {
    fn begin(&self) -> Result<(), String> {
        self.drain()?;
        self.show(false);
        Ok(())
    }

    fn turn(&self) -> Result<(), String> {
        if !self.is_shown.get() {
            self.show(true);
            self.look()?;
        }
        Ok(())
    }

    fn before(&self, op: &Op) -> Result<(), String> {
        if !self.is_shown.get() {
            return Ok(());
        }
        // By its text, so that it stays where it is when other steps are left out.
        let text = op.to_string();
        let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        match (sum >> 20) % 16 {
            0 => self.round(),
            1 => self.look(),
            2 => self.make_room(),
            _ => Ok(()),
        }
    }

    fn drain(&self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            self.round()?;
            if self.is_clean()? {
                return Ok(());
            }
        }
        Err("rounds come to no end".into())
    }

    fn below(&self, kernel: &Tree, clock: Clock) -> Option<String> {
        difference(kernel, &Tree::read(&self.low, clock)).map(|text| format!("below: {text}"))
    }
}

fn mount(image: &std::path::Path, directory: &std::path::Path) -> Result<&'static Cache, String> {
    let text = [image.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let options = engine::mkfs::Options { limit: BYTES, features: format::Features::CACHE, mode: 0o700, ..Default::default() };
    engine::mkfs::make(&text, &options).map_err(|error| error.to_string())?;
    let thread = Thread::new();
    let cx = cx(&thread);
    let place: &'static mut MaybeUninit<Fs> = Box::leak(Box::new(MaybeUninit::uninit()));
    let segments = crate::image::segments();
    let options = Options { segment_dir: Some(segments.as_os_str().as_encoded_bytes()), ..Default::default() };
    let fs = Fs::attach_at(place, &cx, &text, &options).map_err(|error| error.to_string())?;
    let origin = Origin::Directory(directory.as_os_str().as_encoded_bytes());
    cache::prepare(&cx, fs, &origin).map_err(|_| "the image can't become a cache")?;
    let cache = Cache::new(&cx, fs, &origin, Changes::Backend).map_err(|error| format!("{error:?}"))?;
    fs.give_lane_back(&thread);
    Ok(Box::leak(Box::new(cache)))
}

/// Starts who makes the rounds that are waited for, and if `busy` others.
fn write_back(cache: &'static Cache, failed: Arc<Mutex<Option<String>>>, busy: bool) -> Result<(), String> {
    let writer = Writer::new(cache).map_err(|failure| failure.to_string())?;
    let fs = cache.fs();
    fs.writes_back(true).map_err(|error| format!("{error:?}"))?;
    std::thread::spawn(move || {
        while let Ok((seen, wanted)) = fs.rounds_wanted() {
            if busy || wanted.is_some() {
                let result = writer.round(false);
                if let (Err(failure), Ok(mut failed)) = (&result, failed.lock()) {
                    failed.get_or_insert(failure.to_string());
                }
                writer.rest();
                if let Some(wanted) = wanted {
                    let _ = fs.answer(wanted, result.map(drop).map_err(|failure| failure.errno));
                }
            }
            let _ = fs.await_call(seen, if busy { SLEEP.1 } else { SLEEP.0 });
        }
    });
    Ok(())
}

/// Starts who looks at what is below.
fn keep_fresh(cache: &'static Cache) -> (Sender<()>, Receiver<Result<(), String>>) {
    let (looks, asked) = channel::<()>();
    let (answer, looked) = channel();
    std::thread::spawn(move || {
        let thread = Thread::new();
        for () in asked {
            let done = cache.refresh(&cx(&thread), &mut || true);
            cache.give_lane_back(&thread);
            let _ = answer.send(done.map(drop).map_err(|error| format!("a look: {error:?}")));
        }
    });
    (looks, looked)
}
