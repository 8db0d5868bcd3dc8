//! A patched image is opened, recovered, and all of it is read. Errors are right; nothing else is.

use crate::input::Input;
use crate::{patch, place, visit};

/// The target.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    place::with_place(|place| {
        patch::image(place, &mut input);
        if let Ok(attached) = place.attach() {
            visit::visit(attached.fs, &attached.cx());
        }
    });
}
