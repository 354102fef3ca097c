//! The broker's end: a connected TCP socket that Python owns, and the gate that Python's threads close.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustix::time::{ClockId, clock_gettime};

use crate::pump::Peer;

/// The most buffers of one sendmsg (IOV_MAX of Linux).
const MOST_SLICES: usize = 1024;
/// An answer of one partition has some 60 bytes.
const RECEIVE_BYTES: usize = 64 * 1024;

pub struct Socket<'a> {
    pub socket: BorrowedFd<'a>,
    /// The end of the lease, in nanoseconds of CLOCK_BOOTTIME; 0 stops the pump.
    pub gate: &'a AtomicU64,
    /// When the broker answered last, in nanoseconds of CLOCK_MONOTONIC.
    pub heard_at: &'a AtomicU64,
    /// How long to wait for the broker's next bytes.
    pub wait: Timespec,
}

impl Socket<'_> {
    fn wait_for(&self, flags: PollFlags) -> io::Result<()> {
        loop {
            match poll(
                &mut [PollFd::from_borrowed_fd(self.socket, flags)],
                Some(&self.wait),
            ) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Peer for Socket<'_> {
    fn may_send(&self) -> bool {
        nanoseconds(ClockId::Boottime) < self.gate.load(Ordering::Acquire)
    }

    fn send(&mut self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        while !parts.is_empty() {
            let now = &parts[..parts.len().min(MOST_SLICES)];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(self.socket, now, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
                Err(rustix::io::Errno::AGAIN) => self.wait_for(PollFlags::OUT)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, to: &mut Vec<u8>) -> io::Result<usize> {
        let before = to.len();
        loop {
            self.wait_for(PollFlags::IN)?;
            to.resize(before + RECEIVE_BYTES, 0);
            let received = recv(self.socket, &mut to[before..], RecvFlags::DONTWAIT);
            to.truncate(before + received.as_ref().map_or(0, |(_, count)| *count));
            match received {
                Ok((_, count)) => {
                    self.heard_at
                        .store(nanoseconds(ClockId::Monotonic), Ordering::Release);
                    return Ok(count);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
