//! `bypath cat IMG:/path…`

use crate::cmd::print;
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::seen_as::find;
use base::Kind;
use pm::{Errno, UserSlice};
use std::ffi::OsString;

/// Prints the contents of each file.
pub fn cat(places: &[OsString]) -> Result<u8> {
    let places = places.iter().map(find).collect::<Result<Vec<_>>>()?;
    let mut open: Option<(std::path::PathBuf, Tree)> = None;
    for place in &places {
        let mut tree = match open.take() {
            Some((image, tree)) if image == place.image => tree,
            _ => Tree::attach_to_read_at(place)?,
        };
        one(&mut tree, place)?;
        open = Some((place.image.clone(), tree));
    }
    Ok(0)
}

fn one(tree: &mut Tree, place: &Place) -> Result<()> {
    let node = tree.find(place, true)?;
    match tree.attr(place, node)?.kind {
        Kind::Regular => {}
        Kind::Directory => return Err(Failure::errno(place, Errno::EISDIR)),
        kind => return Err(Failure::new(format!("{place}: is a {}, which has no contents here", crate::show::kind_name(kind)))),
    }
    let failed = |error| Failure::engine(place, error);
    tree.backend.access(&tree.cx(), node, base::R).map_err(failed)?;
    let mut buffer = vec![0; 1 << 18];
    let mut at = 0;
    loop {
        let into = UserSlice::from_mut(&mut buffer);
        let read = tree.backend.read(&tree.cx(), node, at, &[into]).map_err(failed)?;
        if read == 0 {
            return Ok(());
        }
        print(&buffer[..read])?;
        at += read as u64;
    }
}
