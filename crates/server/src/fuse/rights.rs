//! What a change takes away: set-id bits, unless who makes it may keep them, and capabilities in any case.
//!
//! When the kernel executes a program it goes by the mode that it keeps. So it is made to forget the one that a write
//! has taken bits from before it hears that the write is done. (The answer to `SETATTR` has the new one; and for capabilities
//! it asks each time.) Such an invalidation is about attributes alone: passing it on waits for no page, and for no request. There
//! must be one and no more: the kernel throws away the attributes in an answer that an invalidation has overtaken, and goes on with
//! those that it had.

use super::abi::InHeader;
use super::message::Result;
use super::notify::forget_attr;
use super::{Call, group};
use base::{Cred, Cx, Node};

/// Overrides permission.
pub(super) const DAC_OVERRIDE: u32 = 1;
/// Keeps set-id bits.
const FSETID: u32 = 4;
/// Sees `trusted.` attributes.
pub(super) const SYS_ADMIN: u32 = 21;

/// What a process may, as far as we can see it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// Supplementary groups.
    pub groups: Vec<u32>,
    capabilities: u64,
}

impl Rights {
    /// Of who made a request. Capabilities are those for our user namespace: another's do not count here.
    pub(super) fn of(header: &InHeader) -> Rights {
        let process = format!("/proc/{}", header.pid);
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap_or_default();
        let mut rights = Rights::from_status(&status);
        let namespace = |process: &str| std::fs::read_link(format!("{process}/ns/user")).ok();
        if header.pid == 0 {
            // One of another PID namespace, of which nothing more is to be learnt.
            rights.capabilities = if header.uid == 0 { u64::MAX } else { 0 };
        } else if namespace(&process).is_none_or(|theirs| namespace("/proc/self") != Some(theirs)) {
            rights.capabilities = 0;
        }
        rights
    }

    fn from_status(status: &str) -> Rights {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let groups = field("Groups:").split_whitespace().filter_map(|id| id.parse().ok()).map(group).collect();
        Rights { groups, capabilities: u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or(0) }
    }

    /// Whether a capability is among them.
    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }
}

impl Call<'_> {
    /// Makes a change of contents, and has the kernel forget the mode that this may have taken set-id bits from. Whether
    /// the caller `keeps` them, most requests say.
    pub(super) fn change_contents<T>(&self, node: Node, keeps: Option<bool>, change: impl FnOnce(&Cx) -> Result<T>) -> Result<T> {
        if keeps == Some(true) {
            return change(&self.cx);
        }
        if self.backend().attr(&self.cx, node)?.mode & 0o6000 == 0 {
            // Those that it gets this very moment go all the same.
            return change(&Cx { cred: Cred { privileged: false, ..self.cx.cred }, ..self.cx });
        }
        let rights = Rights::of(self.header);
        let privileged = keeps.unwrap_or_else(|| rights.has(FSETID));
        let result = change(&Cx { cred: Cred { groups: &rights.groups, privileged, ..self.cx.cred }, ..self.cx });
        (self.fuse.locks.later)(&forget_attr(self.fuse.number(node)));
        result
    }

    /// Makes a change of owner. Whether a set-group-id bit stays that is not for execution depends on who makes it.
    pub(super) fn change_owner(&self, node: Node, change: impl FnOnce(&Cx) -> Result<()>) -> Result<()> {
        if self.backend().attr(&self.cx, node)?.mode & 0o2010 != 0o2000 {
            return change(&self.cx);
        }
        let rights = Rights::of(self.header);
        let cred = Cred { groups: &rights.groups, privileged: rights.has(FSETID), ..self.cx.cred };
        change(&Cx { cred, ..self.cx })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: groups and capabilities are found in what the kernel shows of a process, and nothing is made up.
    #[test]
    fn status() {
        let text = "Name:\tx\nGroups:\t4 20 1000 \nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000200012\n";
        let rights = Rights::from_status(text);
        assert_eq!(rights.groups, [4, 20, 1000]);
        assert!(rights.has(DAC_OVERRIDE) && rights.has(FSETID) && rights.has(SYS_ADMIN));
        assert!(!rights.has(0) && !rights.has(63));
        assert_eq!(Rights::from_status(""), Rights::default());
    }

    /// Goal: our own capabilities count, and of a process that is not there nothing does.
    #[test]
    fn of_processes() {
        let header = |pid, uid| InHeader { pid, uid, ..InHeader::default() };
        let ours = Rights::from_status(&std::fs::read_to_string("/proc/self/status").unwrap());
        assert_eq!(Rights::of(&header(std::process::id(), 0)).capabilities, ours.capabilities);
        assert_eq!(Rights::of(&header(u32::MAX, 0)), Rights::default());
        assert!(Rights::of(&header(0, 0)).has(FSETID) && !Rights::of(&header(0, 7)).has(FSETID));
    }
}
