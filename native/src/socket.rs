//! The broker's end: a connected TCP socket that Python owns, and the gate that Python's threads close.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustix::time::{ClockId, clock_gettime};

use crate::sender::Peer;

/// The most buffers of one sendmsg (IOV_MAX of Linux).
const MOST_SLICES: usize = 1024;
/// The most bytes of one receive.
pub const RECEIVE_BYTES: usize = 64 * 1024;
/// How long to wait for all of several answers. An answer that is not the expected one may be shorter.
const ALL_ANSWERS: Duration = Duration::from_millis(100);

pub struct Socket<'a> {
    socket: BorrowedFd<'a>,
    /// The end of the lease, in nanoseconds of CLOCK_BOOTTIME; 0 stops the sender.
    gate: &'a AtomicU64,
    /// When the broker sent anything last, in nanoseconds of CLOCK_MONOTONIC.
    heard_at: &'a AtomicU64,
    /// How long to wait for the broker to take or to send anything.
    wait: Duration,
    /// Called after a signal; an error ends the sender.
    interrupted: &'a (dyn Fn() -> io::Result<()> + Sync),
    /// The socket's SO_RCVLOWAT: the bytes that make it readable.
    mark: usize,
}

impl<'a> Socket<'a> {
    pub fn new(
        socket: BorrowedFd<'a>,
        gate: &'a AtomicU64,
        heard_at: &'a AtomicU64,
        wait: Duration,
        interrupted: &'a (dyn Fn() -> io::Result<()> + Sync),
    ) -> Self {
        Socket {
            socket,
            gate,
            heard_at,
            wait,
            interrupted,
            mark: 1,
        }
    }

    /// Wait for an event; return whether it came in time.
    fn wait_for(&self, flags: PollFlags, wait: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        };
        loop {
            let mut polled = [PollFd::from_borrowed_fd(self.socket, flags)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => (self.interrupted)()?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub fn wait_or_time_out(&self, flags: PollFlags) -> io::Result<()> {
        match self.wait_for(flags, self.wait)? {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Keep the time at which the broker sent something.
    pub fn hear(&self) {
        self.heard_at
            .store(nanoseconds(ClockId::Monotonic), Ordering::Release);
    }

    /// Be woken by so many bytes, and not by each answer.
    fn set_mark(&mut self, mark: usize) -> io::Result<()> {
        if mark != self.mark {
            set_low_water_mark(self.socket, mark)?;
            self.mark = mark;
        }
        Ok(())
    }
}

impl Peer for Socket<'_> {
    fn may_send(&self) -> bool {
        nanoseconds(ClockId::Boottime) < self.gate.load(Ordering::Acquire)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let parts = &parts[..parts.len().min(MOST_SLICES)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(
            self.socket,
            parts,
            &mut SendAncillaryBuffer::default(),
            flags,
        ) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            sent => Ok(sent?),
        }
    }

    fn wait_to_send(&mut self) -> io::Result<()> {
        self.wait_or_time_out(PollFlags::OUT)
    }

    fn receive(&mut self, to: &mut Vec<u8>, expected: usize) -> io::Result<usize> {
        let before = to.len();
        loop {
            // A blocking receive with a mark takes what is there, and waits for the whole mark once more.
            self.set_mark(expected.min(RECEIVE_BYTES))?;
            if self.mark == 1 || !self.wait_for(PollFlags::IN, ALL_ANSWERS.min(self.wait))? {
                self.set_mark(1)?;
                self.wait_or_time_out(PollFlags::IN)?;
            }
            to.resize(before + expected.clamp(512, RECEIVE_BYTES), 0);
            let received = recv(self.socket, &mut to[before..], RecvFlags::DONTWAIT);
            to.truncate(before + received.as_ref().map_or(0, |(_, count)| *count));
            match received {
                Ok((_, count)) => {
                    self.hear();
                    return Ok(count);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Socket<'_> {
    /// Python's receives block, so they need the mark that they know.
    fn drop(&mut self) {
        let _ = self.set_mark(1);
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Set SO_RCVLOWAT, which rustix does not have.
#[allow(unsafe_code)]
fn set_low_water_mark(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let value = bytes as libc::c_int;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel reads one int.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Instant;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        (client, listener.accept().expect("accepted").0)
    }

    fn with<R>(client: &TcpStream, wait_ms: u64, test: impl FnOnce(&mut Socket<'_>) -> R) -> R {
        let words = [AtomicU64::new(u64::MAX), AtomicU64::new(0)];
        let wait = Duration::from_millis(wait_ms);
        let mut socket = Socket::new(client.as_fd(), &words[0], &words[1], wait, &|| Ok(()));
        test(&mut socket)
    }

    #[test]
    fn fewer_bytes_than_expected_are_received_after_a_while() {
        let (client, mut broker) = pair();
        broker.write_all(b"abc").expect("sent");
        let mut received = b"before".to_vec();
        let count = with(&client, 10_000, |socket| {
            socket.receive(&mut received, 40_000)
        });
        assert_eq!(
            (count.expect("received"), &received[..]),
            (3, &b"beforeabc"[..])
        );
    }

    #[test]
    fn blocking_receive_after_a_sender_takes_what_is_there() {
        let (client, mut broker) = pair();
        broker.write_all(b"abc").expect("sent");
        with(&client, 10_000, |socket| {
            socket.receive(&mut Vec::new(), 500)
        })
        .expect("received");
        broker.write_all(b"d").expect("sent");
        assert_eq!((&client).read(&mut [0; 10]).expect("received"), 1);
    }

    #[test]
    fn silence_times_out_and_a_hangup_is_no_silence() {
        let (client, broker) = pair();
        let began = Instant::now();
        let error = with(&client, 150, |socket| socket.receive(&mut Vec::new(), 500));
        assert_eq!(error.expect_err("silence").kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= Duration::from_millis(150));
        drop(broker);
        let count = with(&client, 600_000, |socket| {
            socket.receive(&mut Vec::new(), 500)
        });
        assert_eq!(count.expect("no error"), 0);
    }

    #[test]
    fn shutdown_by_another_thread_ends_the_wait() {
        let (client, _broker) = pair();
        let other = client.try_clone().expect("a descriptor");
        let aborting = std::thread::spawn(move || other.shutdown(std::net::Shutdown::Both));
        let count = with(&client, 600_000, |socket| {
            socket.receive(&mut Vec::new(), 500)
        });
        assert_eq!(count.expect("no error"), 0);
        aborting.join().expect("no panic").expect("shut down");
    }

    #[test]
    fn full_socket_takes_nothing_until_the_broker_reads() {
        let (client, mut broker) = pair();
        let bytes = vec![7; 1 << 20];
        with(&client, 600_000, |socket| {
            let mut sent = 0;
            loop {
                match socket.send(&[IoSlice::new(&bytes)]).expect("sent") {
                    0 => break,
                    count => sent += count,
                }
            }
            let reading = std::thread::spawn(move || {
                broker.read_exact(&mut vec![0; sent]).expect("all of it");
                broker
            });
            socket.wait_to_send().expect("room");
            assert!(socket.send(&[IoSlice::new(&bytes)]).expect("sent") > 0);
            reading.join().expect("no panic");
        });
    }

    #[test]
    fn gate_is_a_time_since_boot() {
        let (client, _broker) = pair();
        let now_ns = nanoseconds(ClockId::Boottime);
        for (until, may_send) in [
            (0, false),
            (now_ns, false),
            (now_ns + 3_600_000_000_000, true),
        ] {
            let gate = AtomicU64::new(until);
            let heard_at = AtomicU64::new(0);
            let socket = Socket::new(client.as_fd(), &gate, &heard_at, Duration::ZERO, &|| Ok(()));
            assert_eq!(socket.may_send(), may_send);
        }
    }
}
