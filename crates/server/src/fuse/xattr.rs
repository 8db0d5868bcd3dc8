//! Extended attributes.

use super::Call;
use super::abi::{GetXattrIn, SetXattrIn};
use super::message::{Body, Reply, Result, err};
use super::rights::{Rights, SYS_ADMIN};
use base::{Cred, Cx};
use pm::{Errno, UserSlice};

/// SELinux's label. `ls -l` asks each file for it, a request each time, unless it hears once that there
/// are none in a file system. Where SELinux is at work, the kernel does not ask us.
const LABEL: &[u8] = b"security.selinux";

/// Longest value, or list of names, bytes.
const XATTR_MAX: usize = 64 << 10;

impl Call<'_> {
    pub(super) fn set_xattr(&self, mut body: Body) -> Result<()> {
        let asked: SetXattrIn = body.take()?;
        let name = body.text()?;
        let value = UserSlice::from_ref(body.bytes(asked.size)?);
        self.backend().set_xattr(&self.cx, self.node(), name, value, asked.flags)
    }

    pub(super) fn get_xattr(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: GetXattrIn = body.take()?;
        let name = body.text()?;
        let got = sized(reply, asked.size, |out| self.backend().get_xattr(&self.cx, self.node(), name, out));
        match got {
            Err(error) if name == LABEL && error.errno() == Errno::ENODATA => err(Errno::EOPNOTSUPP),
            got => got,
        }
    }

    pub(super) fn list_xattr(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: GetXattrIn = body.take()?;
        let list = |privileged, out| {
            let cred = Cred { privileged, ..self.cx.cred };
            self.backend().list_xattr(&Cx { cred, ..self.cx }, self.node(), out)
        };
        // Who is not privileged does not see all of them. Seldom is there one that he does not.
        let len = |privileged| list(privileged, UserSlice::from_mut(&mut []));
        let sees_all = len(true)? == len(false)? || Rights::of(self.header).has(SYS_ADMIN);
        sized(reply, asked.size, |out| list(sees_all, out))
    }

    pub(super) fn remove_xattr(&self, mut body: Body) -> Result<()> {
        self.backend().remove_xattr(&self.cx, self.node(), body.text()?)
    }
}

/// Answers with up to `size` bytes, or with their number if no size is given.
fn sized(reply: &mut Reply, size: u32, get: impl FnOnce(UserSlice) -> Result<usize>) -> Result<()> {
    if size == 0 {
        let len = get(UserSlice::from_mut(&mut []))?;
        reply.put(&GetXattrIn { size: len as u32, padding: 0 });
        return Ok(());
    }
    reply.fill((size as usize).min(XATTR_MAX), |room| get(UserSlice::from_mut(room)))
}
