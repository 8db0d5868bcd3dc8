//! `posix_spawn`, `posix_spawnp` and their file actions.

use crate::next;
use crate::process::spawn::actions::{Step, copy, forget, note};
use crate::process::spawn::order::{Order, Strings};
use crate::process::spawn::spawn;
use core::ffi::{c_char, c_int, c_void};

const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

type Init = unsafe extern "C" fn(*mut c_void) -> c_int;

/// libc's own function on the object, then the note.
macro_rules! add {
    ($name:literal, ($($kind:ty),*), ($actions:expr $(, $argument:expr)*), $step:expr) => {
        match next!(unsafe extern "C" fn(*mut c_void $(, $kind)*) -> c_int, $name) {
            Some(next) => match next($actions $(, $argument)*) {
                0 if !note($actions, $step) => ENOMEM,
                result => result,
            },
            None => EINVAL,
        }
    };
}

export! {
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
        forget(actions);
        match next!(Init, "posix_spawn_file_actions_init") {
            Some(next) => next(actions),
            None => EINVAL,
        }
    }
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
        forget(actions);
        match next!(Init, "posix_spawn_file_actions_destroy") {
            Some(next) => next(actions),
            None => EINVAL,
        }
    }
    fn posix_spawn_file_actions_addclose(actions: *mut c_void, fd: c_int) -> c_int {
        add!("posix_spawn_file_actions_addclose", (c_int), (actions, fd), Step::Close(fd))
    }
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int {
        add!("posix_spawn_file_actions_adddup2", (c_int, c_int), (actions, from, to), Step::Dup2(from, to))
    }
    fn posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int {
        add!("posix_spawn_file_actions_addfchdir_np", (c_int), (actions, fd), Step::Fchdir(fd))
    }
    fn posix_spawn_file_actions_addclosefrom_np(actions: *mut c_void, first: c_int) -> c_int {
        add!("posix_spawn_file_actions_addclosefrom_np", (c_int), (actions, first), Step::CloseFrom(first))
    }
    fn posix_spawn_file_actions_addtcsetpgrp_np(actions: *mut c_void, fd: c_int) -> c_int {
        add!("posix_spawn_file_actions_addtcsetpgrp_np", (c_int), (actions, fd), Step::TcSetPgrp(fd))
    }
    fn posix_spawn_file_actions_addchdir_np(actions: *mut c_void, path: *const c_char) -> c_int {
        let own = copy(path);
        if own.is_null() {
            return ENOMEM;
        }
        add!("posix_spawn_file_actions_addchdir_np", (*const c_char), (actions, path), Step::Chdir(own))
    }
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
        let own = copy(path);
        if own.is_null() {
            return ENOMEM;
        }
        let step = Step::Open { fd, path: own, flags, mode };
        add!("posix_spawn_file_actions_addopen", (c_int, *const c_char, c_int, u32), (actions, fd, path, flags, mode), step)
    }
    fn posix_spawn(pid: *mut c_int, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int {
        spawn(pid, &Order { file, actions, attr, argv, envp, search: false })
    }
    fn posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int {
        spawn(pid, &Order { file, actions, attr, argv, envp, search: true })
    }
}
