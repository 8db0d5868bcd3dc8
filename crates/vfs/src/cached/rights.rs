//! Attributes, and who may do what by them: from the session's cache, or asked below.

use super::{Cached, LowerFs, posix};
use crate::{Attr, Cx, Errno, Node, Result};

/// What attributes allow.
pub(super) fn may(cx: &Cx, attr: &Attr, want: u16) -> Result<()> {
    if cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, want) { Ok(()) } else { posix(Errno::EACCES) }
}

impl<S: LowerFs> Cached<S> {
    /// Attributes that may be believed.
    pub(super) fn fresh_attr(&self, cx: &Cx, node: Node) -> Result<Attr> {
        if let Some(attr) = self.session.attr(node)? {
            return Ok(attr);
        }
        if let Some(attr) = self.removed_attr(node)? {
            return Ok(attr);
        }
        let asked = self.session.moment();
        let (attr, ns) = self.lower.attr(&self.session, cx, node)?;
        self.session.set_attr(node, &attr, ns, asked)?;
        Ok(attr)
    }

    /// Attributes of which type, mode and owner are fresh.
    pub(super) fn rights(&self, cx: &Cx, node: Node) -> Result<Attr> {
        match self.session.rights(node)? {
            Some(attr) => Ok(attr),
            None => self.fresh_attr(cx, node),
        }
    }

    /// See [`crate::Backend::attr_found`].
    pub(super) fn attr_of_walk(&self, cx: &Cx, node: Node) -> Result<Attr> {
        let is_asked_for = cx.thread.looked_up.get() == Some((self.lower.device(), node.id)) && self.lower.is_remembered();
        match if is_asked_for { self.session.attr_looked_up(node)? } else { None } {
            Some(attr) => Ok(attr),
            None => self.fresh_attr(cx, node),
        }
    }
}
