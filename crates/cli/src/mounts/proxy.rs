//! The ring's requests over a socket, for a daemon into which no library can be loaded.
//!
//! ```text
//!  clients ══ ring ══ requests ─► SOCK_SEQPACKET ─► daemon (mount point /dev/fd/3)
//!                     ══ replies  ◄─      pair      ◄─
//! ```
//!
//! To the clients this is the daemon: they see the ring and nothing else, and its
//! requests are bound to one incarnation, time out, and end with the daemon as ever. One
//! thread takes requests from the ring and sends each as one packet, another one takes
//! packets for replies; so a daemon that reads no more stops nobody who waits for a
//! reply. No packet is larger than the socket's buffer, which is proven when it is made.
//!
//! The daemon has nothing of ours but its end of the pair. When that is closed, by
//! its death or otherwise, the replies end, and with them this life: the watcher's pipe is
//! held by their thread.
//!
//! A packet that is not as long as it says ends the daemon: it is a piece of a reply (`splice`
//! into a socket cuts them), and the next one, with the contents of some file at its
//! front, would be taken for a reply to anybody.

use super::daemon::Watched;
use crate::failure::{Failure, Result};
use fuse_client::ring::{MESSAGE_MAX, OUT_HEADER, Ring};
use pm::UserSlice;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};
use std::io::PipeWriter;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What a socket wants beside the bytes of a packet.
const PACKET_EXTRA: usize = 32;
/// Buffer of each end, in messages.
const BUFFERED: usize = 4;
/// How often it is looked whether the process that was started has failed: what it has started itself
/// may hold its end of the pair.
const LOOK: Duration = Duration::from_secs(1);

/// Both threads of one incarnation.
pub struct Proxy {
    socket: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

/// A pair that takes every message whole: ours and the daemon's.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let failed = |errno: Errno| Failure::io("socket pair", &errno.into());
    let family = rustix::net::AddressFamily::UNIX;
    let (ours, theirs) = rustix::net::socketpair(family, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(failed)?;
    for socket in [&ours, &theirs] {
        // As much of it as the system allows.
        sockopt::set_socket_send_buffer_size(socket, BUFFERED * MESSAGE_MAX).map_err(failed)?;
        let room = sockopt::socket_send_buffer_size(socket).map_err(failed)?;
        if room < MESSAGE_MAX + PACKET_EXTRA {
            let least = (MESSAGE_MAX + PACKET_EXTRA).div_ceil(2);
            return Err(Failure::new(format!(
                "a socket takes {room} bytes at once, and a daemon's messages have up to {MESSAGE_MAX}; set net.core.wmem_max to {least} at least"
            )));
        }
    }
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(LOOK)).map_err(failed)?;
    Ok((ours, theirs))
}

impl Proxy {
    /// Begins to serve the ring by the daemon at the other end of `socket`; `life` is closed when it has ended.
    pub fn start(socket: OwnedFd, ring: &Arc<Ring>, daemon: Watched, life: PipeWriter) -> Result<Proxy> {
        let socket = Arc::new(socket);
        let mut proxy = Proxy { socket: Arc::clone(&socket), threads: Vec::new() };
        let failed = |error: std::io::Error| Failure::io("a thread", &error);
        let (of_requests, of_replies) = ((Arc::clone(&socket), Arc::clone(ring)), (socket, Arc::clone(ring)));
        let requests = Builder::new().name("requests".into()).spawn(move || requests(&of_requests.0, &of_requests.1));
        proxy.threads.push(requests.map_err(failed)?);
        let replies = Builder::new().name("replies".into()).spawn(move || {
            replies(&of_replies.0, &of_replies.1, &daemon);
            hang_up(&of_replies.0);
            drop(life);
        });
        proxy.threads.push(replies.map_err(failed)?);
        Ok(proxy)
    }

    /// The daemon finds the end of its socket; what it has sent is still taken.
    pub fn hang_up(&self) {
        hang_up(&self.socket);
    }

    /// Ends both threads; the ring's life must be over.
    pub fn end(self) {
        self.hang_up();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn hang_up(socket: &OwnedFd) {
    // It may have been done.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Sends what the ring has, until its life or the daemon's is over.
fn requests(socket: &OwnedFd, ring: &Ring) {
    let mut message = vec![0u8; MESSAGE_MAX];
    loop {
        match ring.receive(&[UserSlice::from_mut(&mut message)]) {
            Ok(len) => {
                if send(socket, ring, &message[..len]).is_err() {
                    return hang_up(socket);
                }
            }
            // Longer than any message: a client's mistake, which costs its own time-out.
            Err(pm::Errno::EINVAL) => {}
            Err(_) => return,
        }
    }
}

/// `Err` when there is nobody to send to.
fn send(socket: &OwnedFd, ring: &Ring, message: &[u8]) -> std::result::Result<(), ()> {
    loop {
        match rustix::net::send(socket, message, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(()),
            Err(errno) => {
                // No memory for it: this request fails, and no other.
                fail(ring, message, errno);
                return Ok(());
            }
        }
    }
}

/// In the daemon's place, an error for the request with the number of this one, or of this reply.
fn fail(ring: &Ring, message: &[u8], errno: Errno) {
    let mut reply = [0u8; OUT_HEADER];
    reply[..4].copy_from_slice(&(OUT_HEADER as u32).to_ne_bytes());
    reply[4..8].copy_from_slice(&(-errno.raw_os_error()).to_ne_bytes());
    reply[8..].copy_from_slice(&message[8..16]);
    let _ = ring.reply(&[UserSlice::from_ref(&reply)], false);
}

/// Takes replies until there are no more.
fn replies(socket: &OwnedFd, ring: &Ring, daemon: &Watched) {
    let mut message = vec![0u8; MESSAGE_MAX];
    loop {
        // With `TRUNC` the length is that of the packet, however much of it has found room.
        match rustix::net::recv(socket, &mut message[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return,
            Ok((_, len)) => {
                let said = u32::from_ne_bytes([message[0], message[1], message[2], message[3]]) as usize;
                if len < OUT_HEADER || said != len {
                    eprintln!(
                        "bypath: {}: malformed FUSE reply ({len} bytes, header says {said}); disconnecting",
                        daemon.shown()
                    );
                    return;
                }
                match message.get(..len) {
                    // To nobody, twice, of no sense: that is the ring's to see.
                    Some(reply) => drop(ring.reply(&[UserSlice::from_ref(reply)], false)),
                    // Nobody has asked for so much.
                    None => fail(ring, &message, Errno::IO),
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !daemon.has_failed() => {}
            Err(_) => return,
        }
    }
}
