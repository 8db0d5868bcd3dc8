//! How a stream moves: what an entry is, what a directory holds, down, on, up.

use crate::runtime::{errno, imports};
use core::ffi::c_int;

use pm::Errno;
use pm::sys::abi;

use super::*;

impl Fts {
    pub(super) fn has(&self, option: c_int) -> bool {
        self.options & option != 0
    }

    pub(super) fn stop(&mut self) -> *mut Entry {
        self.options |= STOP;
        core::ptr::null_mut()
    }

    /// To a directory by descriptor, unless paths are used.
    pub(super) fn chdir_to(&self, fd: c_int) -> bool {
        self.has(NOCHDIR) || errno::ret(call::fchdir(fd)) == 0
    }

    /// To the directory of `entry`, by descriptor or path, if it is still that directory.
    pub(super) fn chdir_checked(&self, entry: &Entry, fd: Option<c_int>, path: *const u8) -> bool {
        if self.has(NOCHDIR) {
            return true;
        }
        let flags = abi::O_RDONLY | abi::O_DIRECTORY | abi::O_CLOEXEC;
        let opened = match fd {
            Some(fd) => fd,
            // SAFETY: a string.
            None => errno::ret_int(unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, path, flags, 0) }),
        };
        if opened < 0 {
            return false;
        }
        let mut stat = core::mem::MaybeUninit::<abi::stat>::zeroed();
        // SAFETY: room for the answer.
        let mut ok = errno::ret(unsafe { serve!(abi::__NR_fstat, opened, stat.as_mut_ptr()) }) == 0;
        // SAFETY: zeroed, and plain numbers.
        let stat = unsafe { stat.assume_init_ref() };
        if ok && (entry.device != stat.st_dev || entry.ino != stat.st_ino) {
            errno::set(Errno::ENOENT.0);
            ok = false;
        }
        ok = ok && self.chdir_to(opened);
        if fd.is_none() {
            let saved = errno::get();
            close(opened);
            errno::set(saved);
        }
        ok
    }

    /// Fills in what an entry is.
    pub(super) fn look(&self, entry: *mut Entry, follow: bool) -> u16 {
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        let by = |flags: u32| {
            // SAFETY: a string, and room in the entry's block.
            -unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, fields.access, fields.stat, flags) } as c_int
        };
        if self.has(LOGICAL) || follow {
            let code = by(0);
            if code != 0 {
                if by(abi::AT_SYMLINK_NOFOLLOW) == 0 {
                    errno::set(0);
                    return SLNONE;
                }
                return Self::no_stat(fields, code);
            }
        } else {
            let code = by(abi::AT_SYMLINK_NOFOLLOW);
            if code != 0 {
                return Self::no_stat(fields, code);
            }
        }
        // SAFETY: just filled in.
        let stat = unsafe { &*fields.stat };
        match stat.st_mode & abi::S_IFMT {
            abi::S_IFDIR => {
                fields.device = stat.st_dev;
                fields.ino = stat.st_ino;
                // 32 bits on some machines.
                #[allow(clippy::unnecessary_cast)]
                let links = stat.st_nlink as u64;
                fields.links = links;
                // SAFETY: the entry's name.
                if matches!(unsafe { imports::bytes(name_of(entry).cast()) }, b"." | b"..") {
                    return DOT;
                }
                let mut above = fields.parent;
                // SAFETY: parents live as long as their children.
                while let Some(up) = unsafe { above.as_ref() }.filter(|up| up.level >= 0) {
                    if up.ino == fields.ino && up.device == fields.device {
                        fields.cycle = above;
                        return DC;
                    }
                    above = up.parent;
                }
                D
            }
            abi::S_IFLNK => SL,
            abi::S_IFREG => F,
            _ => DEFAULT,
        }
    }

    pub(super) fn no_stat(entry: &mut Entry, code: c_int) -> u16 {
        entry.errno = code;
        // SAFETY: room in the entry's block.
        unsafe { core::ptr::write_bytes(entry.stat, 0, 1) };
        NS
    }

    /// Sorts a list of `len` entries as the program wishes.
    pub(super) fn sort(&mut self, list: *mut Entry, len: usize) -> *mut Entry {
        let Some(compare) = self.compare.filter(|_| len > 1) else { return list };
        // SAFETY: plain allocation.
        let array = unsafe { malloc(len * size_of::<*mut Entry>()) }.cast::<*mut Entry>();
        if array.is_null() {
            return list;
        }
        let mut entry = list;
        for i in 0..len {
            // SAFETY: `array` has `len` places.
            unsafe { *array.add(i) = entry };
            // SAFETY: the list has `len` entries.
            entry = unsafe { (*entry).link };
        }
        // SAFETY: the program's comparison on pointers to entries.
        unsafe { qsort(array.cast(), len, size_of::<*mut Entry>(), compare) };
        for i in 0..len {
            // SAFETY: as above.
            let next = if i + 1 < len { unsafe { *array.add(i + 1) } } else { core::ptr::null_mut() };
            // SAFETY: as above.
            unsafe { (**array.add(i)).link = next };
        }
        // SAFETY: as above.
        let first = unsafe { *array };
        // SAFETY: malloc's.
        unsafe { free(array.cast()) };
        first
    }

    /// Reads the directory `current`: its entries as a list; null if none, or on failure.
    pub(super) fn build(&mut self, kind: Build) -> *mut Entry {
        let current = self.current;
        // SAFETY: a live entry.
        let now = unsafe { &mut *current };
        // SAFETY: a string.
        let stream = unsafe { dir::opendir(now.access.cast()) };
        if stream.is_null() {
            if kind == Build::Read {
                now.info = DNR;
                now.errno = errno::get();
            }
            return core::ptr::null_mut();
        }
        let mut failed = 0;
        let mut inside = false;
        if kind != Build::Names {
            // SAFETY: a live stream.
            inside = self.chdir_checked(now, Some(unsafe { dir::dirfd(stream) }), core::ptr::null());
            if !inside {
                failed = errno::get();
                if kind == Build::Read {
                    now.errno = failed;
                }
                now.flags |= DONT_CHDIR;
            }
        }
        let base = append_at(now) + 1;
        let mut list: (*mut Entry, *mut Entry, usize) = (core::ptr::null_mut(), core::ptr::null_mut(), 0);
        loop {
            // SAFETY: a live stream.
            let found = unsafe { dir::readdir64(stream) };
            if found.is_null() {
                break;
            }
            let entry = self.take(found, base, kind, failed);
            match entry {
                Ok(entry) if entry.is_null() => continue,
                Ok(entry) => {
                    if list.1.is_null() {
                        list.0 = entry;
                    } else {
                        // SAFETY: the last entry of the list.
                        unsafe { (*list.1).link = entry };
                    }
                    list.1 = entry;
                    list.2 += 1;
                }
                Err(code) => {
                    free_list(list.0);
                    // SAFETY: the stream is ours.
                    unsafe { dir::closedir(stream) };
                    now.info = ERR;
                    errno::set(code);
                    return self.stop();
                }
            }
        }
        // SAFETY: the stream is ours.
        unsafe { dir::closedir(stream) };
        // SAFETY: the path holds that many bytes.
        unsafe { self.path.add(now.path_len as usize).write(0) };
        if inside && (kind == Build::Children || list.2 == 0) && !self.back_out(now) {
            now.info = ERR;
            free_list(list.0);
            return self.stop();
        }
        if list.2 == 0 {
            if kind == Build::Read {
                now.info = DP;
            }
            return core::ptr::null_mut();
        }
        self.sort(list.0, list.2)
    }

    /// Out of the directory `entry` again.
    pub(super) fn back_out(&self, entry: &Entry) -> bool {
        if entry.level == 0 {
            return self.chdir_to(self.home);
        }
        // SAFETY: an entry below a root has a parent.
        self.chdir_checked(unsafe { &*entry.parent }, None, c"..".as_ptr().cast())
    }

    /// An entry for what `readdir` found; null if it is to be left out.
    pub(super) fn take(&mut self, found: *mut Dirent, base: usize, kind: Build, failed: c_int) -> Result<*mut Entry, c_int> {
        // SAFETY: a whole record.
        let (name, d_type) = unsafe { (imports::bytes((&raw const (*found).name).cast()), (*found).kind) };
        if !self.has(SEE_DOTS) && (name == b"." || name == b"..") {
            return Ok(core::ptr::null_mut());
        }
        if base + name.len() >= PATH_BYTES {
            return Err(Errno::ENAMETOOLONG.0);
        }
        let entry = new_entry(name, self.path);
        // SAFETY: null, or a fresh entry.
        let Some(fields) = (unsafe { entry.as_mut() }) else { return Err(Errno::ENOMEM.0) };
        // SAFETY: the live entry that is being read.
        let now = unsafe { &*self.current };
        fields.level = now.level + 1;
        fields.parent = self.current;
        fields.path_len = (base + name.len()) as u16;
        if failed != 0 {
            fields.info = NS;
            fields.errno = failed;
            fields.access = now.access;
            return Ok(entry);
        }
        if self.has(NOCHDIR) {
            fields.access = self.path;
            // SAFETY: `base` is at least 1, and the path has room (checked above).
            unsafe { self.path.add(base - 1).write(b'/') };
            // SAFETY: as above; the name ends with a NUL.
            unsafe { core::ptr::copy_nonoverlapping(name_of(entry), self.path.add(base), name.len() + 1) };
        } else {
            fields.access = name_of(entry);
        }
        let known = self.has(NOSTAT) && self.has(PHYSICAL) && d_type != abi::DT_DIR as u8 && d_type != abi::DT_UNKNOWN as u8;
        fields.info = if kind == Build::Names || known { NSOK } else { self.look(entry, false) };
        Ok(entry)
    }

    /// Makes a root the current one: its path is the name it was given with.
    pub(super) fn load(&mut self, entry: *mut Entry) {
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        let len = fields.name_len as usize;
        fields.path_len = fields.name_len;
        // SAFETY: the path has room for every name that `fts_open` took.
        unsafe { core::ptr::copy(name_of(entry), self.path, len + 1) };
        // SAFETY: the entry's name.
        let name = unsafe { imports::bytes(name_of(entry).cast()) };
        if let Some(slash) = name.iter().rposition(|&byte| byte == b'/')
            && (slash != 0 || len > 1)
        {
            let tail = len - slash - 1;
            // SAFETY: inside the name, with its NUL.
            unsafe { core::ptr::copy(name_of(entry).add(slash + 1), name_of(entry), tail + 1) };
            fields.name_len = tail as u16;
        }
        fields.access = self.path;
        fields.path = self.path;
        self.device = fields.device;
    }

    /// A symlink that is to be followed: what is behind it, and a way back.
    pub(super) fn follow(&mut self, entry: *mut Entry) {
        let info = self.look(entry, true);
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        fields.info = info;
        if info == D && !self.has(NOCHDIR) {
            fields.symlink_fd = open_here();
            if fields.symlink_fd < 0 {
                fields.errno = errno::get();
                fields.info = ERR;
            } else {
                fields.flags |= SYMLINK_FOLLOWED;
            }
        }
    }

    /// Puts the path of a non-root entry together and makes it current.
    pub(super) fn enter(&mut self, entry: *mut Entry) -> *mut Entry {
        // SAFETY: a live entry, whose parent lives too.
        let base = append_at(unsafe { &*(*entry).parent });
        // SAFETY: a live entry.
        let len = unsafe { (*entry).name_len } as usize;
        // SAFETY: the path has room (checked when the entry was made).
        unsafe { self.path.add(base).write(b'/') };
        // SAFETY: as above.
        unsafe { core::ptr::copy(name_of(entry), self.path.add(base + 1), len + 1) };
        self.current = entry;
        entry
    }

    /// Down into the directory `entry`: its first child, or itself if there is none; null to stop.
    pub(super) fn descend(&mut self, entry: *mut Entry) -> *mut Entry {
        if !self.children.is_null() && self.has(NAMES_ONLY) {
            self.options &= !NAMES_ONLY;
            free_list(core::mem::replace(&mut self.children, core::ptr::null_mut()));
        }
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        if self.children.is_null() {
            self.children = self.build(Build::Read);
            if self.children.is_null() {
                return if self.has(STOP) { core::ptr::null_mut() } else { entry };
            }
        } else if !self.chdir_checked(fields, None, fields.access) {
            fields.errno = errno::get();
            fields.flags |= DONT_CHDIR;
            let mut child = self.children;
            // SAFETY: entries of the list.
            while let Some(at) = unsafe { child.as_mut() } {
                at.access = fields.access;
                child = at.link;
            }
        }
        let first = core::mem::replace(&mut self.children, core::ptr::null_mut());
        self.enter(first)
    }

    /// The next entry after `done` at its level, or its parent once more.
    pub(super) fn advance(&mut self, mut done: *mut Entry) -> *mut Entry {
        loop {
            // SAFETY: a live entry.
            let (next, parent) = unsafe { ((*done).link, (*done).parent) };
            self.current = if next.is_null() { parent } else { next };
            // SAFETY: malloc's, and nobody refers to it any more.
            unsafe { free(done.cast()) };
            // SAFETY: null or a live entry.
            let Some(fields) = (unsafe { next.as_mut() }) else { return self.ascend(parent) };
            if fields.level == 0 {
                if !self.chdir_to(self.home) {
                    return self.stop();
                }
                self.load(next);
                return next;
            }
            if fields.instruction == SKIP {
                done = next;
                continue;
            }
            if fields.instruction == FOLLOW {
                self.follow(next);
                fields.instruction = NOTHING;
            }
            return self.enter(next);
        }
    }

    /// All children of `parent` are done.
    pub(super) fn ascend(&mut self, parent: *mut Entry) -> *mut Entry {
        // SAFETY: parents live until here.
        let fields = unsafe { &mut *parent };
        if fields.level < 0 {
            // SAFETY: malloc's.
            unsafe { free(parent.cast()) };
            errno::set(0);
            self.current = core::ptr::null_mut();
            return self.current;
        }
        // SAFETY: the path holds that many bytes.
        unsafe { self.path.add(fields.path_len as usize).write(0) };
        let back = if fields.level == 0 {
            self.chdir_to(self.home)
        } else if fields.flags & SYMLINK_FOLLOWED != 0 {
            let done = self.chdir_to(fields.symlink_fd);
            close(fields.symlink_fd);
            done
        } else {
            fields.flags & DONT_CHDIR != 0 || self.back_out(fields)
        };
        if !back {
            return self.stop();
        }
        fields.info = if fields.errno != 0 { ERR } else { DP };
        self.current = parent;
        parent
    }
}
