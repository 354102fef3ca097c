//! The broker's end behind TLS: Python's own SSL socket, which waits for nothing.
//!
//! Python's `ssl` has the trust stores, the logins and OpenSSL. It is fast if a call gets many bytes: OpenSSL encrypts
//! them without the interpreter's lock. The sender reads the gate before each call.

use std::io::{self, IoSlice};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::PollFlags;

use crate::sender::Peer;
use crate::socket::{RECEIVE_BYTES, Socket};

/// The most bytes of one call, unless a buffer has more.
const JOINED_BYTES: usize = 256 * 1024;

pub struct TlsSocket<'a> {
    tls: Py<PyAny>,
    /// The gate, and the descriptor to wait on.
    socket: Socket<'a>,
    want_read: Py<PyAny>,
    want_write: Py<PyAny>,
    /// The bytes of a call that the socket could not take as a whole. It has sent some of them, and OpenSSL does not
    /// report how many; the call has to be repeated with the same bytes.
    begun: Option<Py<PyBytes>>,
    /// What the last send waits for.
    awaited: PollFlags,
}

impl<'a> TlsSocket<'a> {
    pub fn new(tls: Bound<'_, PyAny>, socket: Socket<'a>) -> PyResult<Self> {
        let ssl = tls.py().import("ssl")?;
        Ok(TlsSocket {
            want_read: ssl.getattr("SSLWantReadError")?.unbind(),
            want_write: ssl.getattr("SSLWantWriteError")?.unbind(),
            tls: tls.unbind(),
            socket,
            begun: None,
            awaited: PollFlags::OUT,
        })
    }

    /// Return what a call waits for, or its failure.
    fn awaited_after(&self, py: Python<'_>, error: PyErr) -> io::Result<PollFlags> {
        if error.matches(py, &self.want_read).unwrap_or(false) {
            Ok(PollFlags::IN)
        } else if error.matches(py, &self.want_write).unwrap_or(false) {
            Ok(PollFlags::OUT)
        } else if error.is_instance_of::<PyOSError>(py) {
            Err(io::Error::other(error))
        } else {
            Err(raised(error))
        }
    }
}

impl Peer for TlsSocket<'_> {
    fn may_send(&self) -> bool {
        self.socket.may_send()
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Python::attach(|py| {
            let joined = match self.begun.take() {
                Some(begun) => begun.into_bound(py),
                None => join(py, parts).map_err(raised)?,
            };
            match self.tls.bind(py).call_method1("send", (&joined,)) {
                Ok(sent) => sent.extract().map_err(raised),
                Err(error) => {
                    self.begun = Some(joined.unbind());
                    self.awaited = self.awaited_after(py, error)?;
                    Ok(0)
                }
            }
        })
    }

    fn is_within_a_send(&self) -> bool {
        self.begun.is_some()
    }

    fn wait_to_send(&mut self) -> io::Result<()> {
        self.socket.wait_or_time_out(self.awaited)
    }

    fn receive(&mut self, to: &mut Vec<u8>, _: usize) -> io::Result<usize> {
        let before = to.len();
        loop {
            // First, since a poll does not see what OpenSSL has decrypted.
            let awaited = Python::attach(|py| {
                match self.tls.bind(py).call_method1("recv", (RECEIVE_BYTES,)) {
                    Ok(received) => {
                        let received: PyResult<&[u8]> = received.extract().map_err(PyErr::from);
                        to.extend_from_slice(received.map_err(raised)?);
                        Ok(None)
                    }
                    Err(error) => self.awaited_after(py, error).map(Some),
                }
            })?;
            let Some(awaited) = awaited else {
                self.socket.hear();
                return Ok(to.len() - before);
            };
            self.socket.wait_or_time_out(awaited)?;
        }
    }
}

/// An exception that leaves the sender, such as a signal handler's.
fn raised(error: PyErr) -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, error)
}

/// Join parts up to the size of a call, or return the first if it has more.
fn join<'py>(py: Python<'py>, parts: &[IoSlice<'_>]) -> PyResult<Bound<'py, PyBytes>> {
    let mut size = 0;
    let mut count = 0;
    for part in parts {
        if count > 0 && size + part.len() > JOINED_BYTES {
            break;
        }
        size += part.len();
        count += 1;
    }
    PyBytes::new_with(py, size, |mut to| {
        for part in &parts[..count] {
            let (head, tail) = to.split_at_mut(part.len());
            head.copy_from_slice(part);
            to = tail;
        }
        Ok(())
    })
}
