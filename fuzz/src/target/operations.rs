//! A patched image is opened and changed by calls.

use crate::input::Input;
use crate::operation::{CALLS_MAX, Caller};
use crate::{patch, place};

/// The target.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    place::with_place(|place| {
        patch::image(place, &mut input);
        let Ok(attached) = place.attach() else { return };
        let mut caller = Caller::new(attached.fs, attached.cx());
        for _ in 0..CALLS_MAX {
            if input.is_empty() {
                break;
            }
            caller.call(&mut input);
        }
    });
}
