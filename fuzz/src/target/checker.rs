//! The checker and the walk agree: what is called clean can be read without an
//! error, name by name. The dump copes with anything.

use crate::input::Input;
use crate::{patch, place, visit};
use engine::inspect::Inspected;

/// The target.
///
/// # Panics
/// If checker and walk disagree.
pub fn run(input: &[u8]) {
    let mut rest = Input(input);
    place::with_place(|place| {
        patch::image(place, &mut rest);
        if rest.byte() & 7 == 1
            && let Ok(inspected) = Inspected::open(&place.path())
        {
            let mut text = String::new();
            engine::dump::print(&inspected, &engine::dump::Options { tree: true, volatile: true }, &mut text).expect("a text");
        }
        let report = engine::check::run(&place.path(), &mut |_| {});
        let attached = place.attach();
        let Ok(report) = report else { return };
        if !report.issues.is_empty() {
            return;
        }
        let attached = attached.unwrap_or_else(|error| panic!("clean, but: {error}"));
        let seen = visit::visit(attached.fs, &attached.cx());
        assert_eq!(seen.error, None, "clean, but the walk met an error");
        if !seen.stopped {
            assert_eq!((seen.names, seen.directories + 1), (report.names, report.directories), "clean, but the walk saw others");
        }
    });
}
