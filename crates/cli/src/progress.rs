//! Progress bars, for people at a terminal.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar on standard error if that is a terminal; else nothing at all.
pub fn bar(quiet: bool, what: &'static str, total: u64) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{prefix:>9} [{bar:40}] {percent:>3} % {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.with_prefix(what)
}

/// Whether anybody sees progress, so that counting beforehand is worth it.
pub fn is_seen(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// What a copy has done so far, for the bar and for the last line.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Names made, directories included.
    pub names: u64,
    /// Contents copied, bytes.
    pub bytes: u64,
    /// Attributes that could not be kept.
    pub dropped: u64,
    /// Names whose source could not be read.
    pub unread: u64,
}

impl Tally {
    /// Shows it on the bar, whose length is bytes plus 4 KiB a name.
    pub fn show(&self, bar: &ProgressBar) {
        if !bar.is_hidden() {
            bar.set_position(self.bytes + self.names * 4096);
            bar.set_message(format!("{} names, {}", HumanCount(self.names), HumanBytes(self.bytes)));
        }
    }
}
