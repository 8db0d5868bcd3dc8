//! The end of a session: whoever leaves an image last takes its segment away.

use crate::fs::Fs;
use base::Cx;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use openfiles::Processes;
use pm::file::File;
use pm::life::Look;
use pm::sys::abi;

impl Fs {
    /// [`detach`](Fs::detach), and if no other process uses the image, removes
    /// the segment: nothing of the session stays behind, and what was cached is
    /// read from the image again next time.
    pub fn end_session(&self, cx: &Cx) {
        // As attaching does: while this lock is held nobody joins. Somebody who is joining may be stopped: then he is not
        // waited for, and the segment stays.
        let file = File::open_known(self.path(), abi::O_RDWR, self.files.image).ok();
        let is_shared = file.as_ref().is_some_and(File::is_shared);
        let locked = file.filter(File::lock_soon);
        self.note_use();
        if is_shared {
            // Before another machine may see that nobody uses it.
            self.tell_others(true);
        }
        self.detach(cx);
        let header = self.volatile();
        let Some(file) = locked else { return };
        let identity = [header.file[0].load(Relaxed), header.file[1].load(Relaxed)];
        let is_ours = self.files.image == identity;
        let is_named = header.token.load(Acquire) == self.header().token.load(Acquire);
        let is_last = is_ours && is_named && self.adopt_all(cx, Look::Thorough) == 0 && self.settle_alone();
        if is_last && !super::volatile::anyone_lives(&self.image) {
            self.image.store_volatile(&header.token, 0);
            self.remove_segment();
        }
        self.give_lane_back(cx.thread);
        if is_shared {
            self.tell_others(false);
        }
        file.unlock();
    }
}
