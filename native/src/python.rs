//! The module's functions, and the buffers that they borrow from Python.
//!
//! The only unsafe code is here: a buffer of Python's becomes a slice. A `PyBuffer` keeps its memory in place until
//! it is released, which happens when the function returns. Python's own rule for the buffers of a mirror is that
//! one thread works on each, so nobody else reads or writes them meanwhile. The gate is the exception, and atomic.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::fingerprint::fingerprint_plain as fingerprint;
use crate::join;
use crate::produce::Head;
use crate::sender::{Buffers, End, Limits, Partition, Peer, Sender};
use crate::socket::Socket;
use crate::tls::TlsSocket;
use crate::walk::{Entry, LOG_APPEND_TIME, Stamp, TRANSACTIONAL, stamp_plain as walk};

/// The version of the functions' signatures; `shoal.native` takes no other.
const INTERFACE: u32 = 12;

/// An entry of an index: size, records, largest timestamp in milliseconds, leader epoch; little-endian.
const ENTRY_BYTES: usize = 20;

/// Sizes of requests are of 31 bits; this leaves room for all that is not batches.
const LARGEST_REQUEST: usize = 1 << 30;

/// Topic, number, buffers of batches, their index, the first one's offset, the newest landed time, the bytes that go
/// together, whether batches may land later.
type Lot = (
    usize,
    i32,
    Vec<PyBuffer<u8>>,
    PyBackedBytes,
    i64,
    Option<i64>,
    usize,
    bool,
);
/// Lot, first batch, the one after the last, error code, base offset, message.
type RefusedRow = (usize, usize, usize, i16, i64, Option<String>);
/// Lot, first batch, base offset.
type LaterRow = (usize, usize, i64);
type SendResult<'py> = (
    &'static str,
    Bound<'py, PyAny>,
    Vec<usize>,
    Vec<RefusedRow>,
    Vec<LaterRow>,
    u32,
);

#[pymodule]
#[pyo3(name = "_native")]
fn shoal_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_function(wrap_pyfunction!(stamp_plain, module)?)?;
    module.add_function(wrap_pyfunction!(fingerprint_plain, module)?)?;
    module.add_function(wrap_pyfunction!(join_plain, module)?)?;
    module.add_function(wrap_pyfunction!(send, module)?)
}

/// Stamp the plain batches of a record set from `position` on, in place.
///
/// Returns where the first other batch begins, how many records the stamped ones have, and an index: for each batch its
/// size, records, largest timestamp and leader epoch at the source, as `struct.Struct("<IIqi")`.
#[pyfunction]
#[pyo3(signature = (
    record_set, position, *, first_offset, end_offset, producer_id, producer_epoch, base_sequence, transactional=false,
    append_time=false
))]
#[allow(clippy::too_many_arguments)]
fn stamp_plain<'py>(
    py: Python<'py>,
    mut record_set: PyBuffer<u8>,
    position: usize,
    first_offset: i64,
    end_offset: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    append_time: bool,
) -> PyResult<(usize, u64, Bound<'py, PyBytes>)> {
    let stamp = Stamp {
        first_offset,
        end_offset,
        producer_id,
        producer_epoch,
        base_sequence,
        cleared: cleared(transactional, append_time),
    };
    let bytes = writable(&mut record_set)?;
    check_position(position, bytes)?;
    let mut entries = Vec::new();
    let end = py.detach(|| walk(bytes, position, &stamp, &mut entries));
    Ok((
        end,
        records_of(&entries),
        PyBytes::new(py, &index_of(&entries)),
    ))
}

/// Join the plain batches of a record set from `position` on, stamped, one behind the other at the beginning of `to`.
///
/// `decompress` gets a codec, records, and the most bytes that may come out; None is a batch to be left. Returns where
/// the first other batch begins, how many records the joined ones have, and their index as of `stamp_plain`.
#[pyfunction]
#[pyo3(signature = (
    record_set, position, *, first_offset, end_offset, producer_id, producer_epoch, base_sequence, transactional,
    append_time, below_bytes, to, decompress
))]
#[allow(clippy::too_many_arguments, clippy::type_complexity)]
fn join_plain<'py>(
    py: Python<'py>,
    record_set: PyBuffer<u8>,
    position: usize,
    first_offset: i64,
    end_offset: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    append_time: bool,
    below_bytes: usize,
    mut to: PyBuffer<u8>,
    decompress: Py<PyAny>,
) -> PyResult<(usize, u64, Bound<'py, PyBytes>)> {
    let to = writable(&mut to)?;
    let bytes = readable(&record_set)?;
    check_position(position, bytes)?;
    let stamp = Stamp {
        first_offset,
        end_offset,
        producer_id,
        producer_epoch,
        base_sequence,
        cleared: cleared(transactional, append_time),
    };
    let mut failure = None;
    let open = |codec, records: &[u8], room| {
        Python::attach(|py| opened(&decompress.bind(py), codec, records, room)).unwrap_or_else(
            |error| {
                failure = Some(error);
                None
            },
        )
    };
    let joined = py.detach(|| join::join(bytes, position, &stamp, below_bytes, to, open));
    if let Some(error) = failure {
        return Err(error);
    }
    Ok((
        joined.end,
        records_of(&joined.entries),
        PyBytes::new(py, &index_of(&joined.entries)),
    ))
}

/// Return the fingerprints of the plain batches of a record set from `position` on: a row for each, as
/// `struct.Struct("<IIIIq")`.
#[pyfunction]
#[pyo3(signature = (record_set, position, *, first_offset, end_offset, transactional))]
fn fingerprint_plain<'py>(
    py: Python<'py>,
    record_set: PyBuffer<u8>,
    position: usize,
    first_offset: i64,
    end_offset: i64,
    transactional: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = readable(&record_set)?;
    check_position(position, bytes)?;
    let rows = py.detach(|| fingerprint(bytes, position, first_offset, end_offset, transactional));
    Ok(PyBytes::new(py, &rows))
}

/// Decompress records by Python.
fn opened(
    decompress: &Bound<'_, PyAny>,
    codec: i16,
    records: &[u8],
    room: usize,
) -> PyResult<Option<Vec<u8>>> {
    let py = decompress.py();
    let records = decompress.call1((codec, PyBytes::new(py, records), room))?;
    if records.is_none() {
        return Ok(None);
    }
    PyBuffer::get(&records)?.to_vec(py).map(Some)
}

/// The bits besides the codec that a plain batch may have in its attributes.
fn cleared(transactional: bool, append_time: bool) -> i16 {
    (i16::from(transactional) * TRANSACTIONAL) | (i16::from(append_time) * LOG_APPEND_TIME)
}

fn check_position(position: usize, bytes: &[u8]) -> PyResult<()> {
    if position > bytes.len() {
        return Err(PyValueError::new_err(format!(
            "position {position} is behind {} bytes",
            bytes.len()
        )));
    }
    Ok(())
}

/// Send lots, and compare the answers; `shoal.native.Native.send` has the contract.
#[pyfunction]
#[pyo3(signature = (
    descriptor, tls, topics, lots, *, version, client_id, acks, timeout_ms, correlation_id, max_in_flight, refill_at,
    request_bytes, forgotten_up_to_ms, max_answer_bytes, wait_ms, gate
))]
#[allow(clippy::too_many_arguments)]
fn send<'py>(
    py: Python<'py>,
    descriptor: i32,
    tls: Option<Bound<'py, PyAny>>,
    topics: Vec<PyBackedBytes>,
    lots: Vec<Lot>,
    version: i16,
    client_id: PyBackedBytes,
    acks: i16,
    timeout_ms: i32,
    correlation_id: i32,
    max_in_flight: usize,
    refill_at: usize,
    request_bytes: usize,
    forgotten_up_to_ms: i64,
    max_answer_bytes: usize,
    wait_ms: u64,
    gate: PyBuffer<u64>,
) -> PyResult<SendResult<'py>> {
    let head = Head {
        version,
        client_id: client_id.to_vec(),
        acks,
        timeout_ms,
    };
    let limits = Limits {
        max_in_flight,
        refill_at,
        request_bytes,
        forgotten_up_to_ms,
        max_answer_bytes,
    };
    let topics: Vec<&[u8]> = topics.iter().map(|each| &**each).collect();
    let indexes: Vec<Vec<Entry>> = lots
        .iter()
        .map(|each| entries_of(&each.3))
        .collect::<PyResult<_>>()?;
    let partitions: Vec<Partition<'_>> = lots
        .iter()
        .zip(&indexes)
        .map(|(lot, entries)| partition_of(lot, entries, topics.len()))
        .collect::<PyResult<_>>()?;
    let largest = partitions.iter().map(Partition::largest_part).max();
    let size = limits.request_bytes.saturating_add(largest.unwrap_or(0));
    if size > LARGEST_REQUEST {
        let refusal = format!("requests of {size} bytes are too large");
        return Err(PyValueError::new_err(refusal));
    }
    let interrupted = || {
        Python::attach(|py| py.check_signals())
            .map_err(|error| io::Error::new(io::ErrorKind::Interrupted, error))
    };
    let (gate_until, heard_at) = gate_of(&gate)?;
    let socket = Socket::new(
        borrowed(descriptor)?,
        gate_until,
        heard_at,
        Duration::from_millis(wait_ms),
        &interrupted,
    );
    let (topics, partitions) = (&topics[..], &partitions[..]);
    let run = |peer: &mut (dyn Peer + Send)| {
        py.detach(|| {
            Sender {
                peer,
                head,
                limits,
                topics,
                partitions,
                correlation_id,
            }
            .run()
        })
    };
    let summary = match tls {
        None => run(&mut { socket }),
        Some(tls) => run(&mut TlsSocket::new(tls, socket)?),
    };
    let refused = summary
        .refused
        .into_iter()
        .map(|each| {
            let batches = each.part.entries;
            (
                each.part.partition,
                batches.start,
                batches.end,
                each.error_code,
                each.base_offset,
                each.message,
            )
        })
        .collect();
    let later = summary
        .later
        .into_iter()
        .map(|each| (each.partition, each.first, each.base_offset))
        .collect();
    let (end, detail) = end_of(py, summary.end)?;
    Ok((
        end,
        detail,
        summary.landed,
        refused,
        later,
        summary.requests,
    ))
}

fn partition_of<'a>(lot: &'a Lot, entries: &'a [Entry], topics: usize) -> PyResult<Partition<'a>> {
    let &(topic, number, ref batches, _, base_offset, newest_ms, together_bytes, lands_later) = lot;
    let buffers = batches.iter().map(readable).collect::<PyResult<_>>()?;
    let batches = Buffers::new(buffers);
    let indexed: usize = entries.iter().map(|each| each.size as usize).sum();
    let records: i64 = entries
        .iter()
        .map(|each| i64::from(each.records_count))
        .sum();
    if topic >= topics
        || indexed != batches.len()
        || base_offset < 0
        || base_offset.checked_add(records).is_none()
    {
        return Err(PyValueError::new_err(format!(
            "partition {number}: topic {topic} of {topics}, {indexed} bytes in the index of {}, {records} records \
             from offset {base_offset}",
            batches.len()
        )));
    }
    Ok(Partition {
        topic,
        number,
        batches,
        entries,
        base_offset,
        newest_ms,
        together_bytes,
        lands_later,
    })
}

/// Return the name of an end, and its detail: a size, an errno, an OSError, or None.
fn end_of(py: Python<'_>, end: End) -> PyResult<(&'static str, Bound<'_, PyAny>)> {
    let none = py.None().into_bound(py);
    Ok(match end {
        End::Done => ("done", none),
        End::GateClosed => ("gate closed", none),
        End::Cut => ("cut", none),
        End::Malformed => ("malformed", none),
        End::WrongId => ("wrong id", none),
        End::Surplus => ("surplus", none),
        End::TooLarge(size) => ("too large", size.into_pyobject(py)?.into_any()),
        End::Closed => ("closed", none),
        End::Failed(error) if error.kind() == io::ErrorKind::TimedOut => ("timed out", none),
        End::Failed(error) => match error.raw_os_error() {
            Some(errno) => ("failed", errno.into_pyobject(py)?.into_any()),
            // Of a handler of Python's, for a signal that came while the sender waited.
            None if error.kind() == io::ErrorKind::Interrupted => return Err(error.into()),
            None => (
                "failed",
                PyErr::from(error).into_value(py).into_bound(py).into_any(),
            ),
        },
    })
}

fn records_of(entries: &[Entry]) -> u64 {
    entries
        .iter()
        .map(|each| u64::from(each.records_count))
        .sum()
}

fn index_of(entries: &[Entry]) -> Vec<u8> {
    let mut index = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        index.extend_from_slice(&entry.size.to_le_bytes());
        index.extend_from_slice(&entry.records_count.to_le_bytes());
        index.extend_from_slice(&entry.max_timestamp_ms.to_le_bytes());
        index.extend_from_slice(&entry.leader_epoch.to_le_bytes());
    }
    index
}

fn entries_of(index: &[u8]) -> PyResult<Vec<Entry>> {
    let (entries, rest) = index.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err(format!(
            "an index of {} bytes has no whole entries",
            index.len()
        )));
    }
    entries
        .iter()
        .map(|entry| {
            let entry = Entry {
                size: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
                records_count: u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]),
                max_timestamp_ms: i64::from_le_bytes(entry[8..16].try_into().expect("eight bytes")),
                leader_epoch: i32::from_le_bytes([entry[16], entry[17], entry[18], entry[19]]),
            };
            match entry.size > 0 && entry.records_count > 0 {
                true => Ok(entry),
                false => Err(PyValueError::new_err("an index has an empty batch")),
            }
        })
        .collect()
}

#[allow(unsafe_code)]
fn writable(buffer: &mut PyBuffer<u8>) -> PyResult<&mut [u8]> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err(
            "the record set is no contiguous writable buffer",
        ));
    }
    // SAFETY: the buffer is contiguous, writable, and borrowed as long as the slice; see the head of this file.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

#[allow(unsafe_code)]
fn readable(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err(
            "the batches are no contiguous buffer",
        ));
    }
    // SAFETY: the buffer is contiguous and borrowed as long as the slice; see the head of this file.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

/// Return the gate and the time of the last bytes, two words that Python's threads write and read meanwhile.
#[allow(unsafe_code)]
fn gate_of(buffer: &PyBuffer<u64>) -> PyResult<(&AtomicU64, &AtomicU64)> {
    if buffer.readonly() || !buffer.is_c_contiguous() || buffer.item_count() != 2 {
        return Err(PyValueError::new_err(
            "the gate is no writable array of two 64-bit words",
        ));
    }
    let words = buffer.buf_ptr().cast::<u64>();
    // SAFETY: two aligned words (PyBuffer<u64> has checked that), borrowed as long as the references.
    Ok(unsafe {
        (
            AtomicU64::from_ptr(words),
            AtomicU64::from_ptr(words.add(1)),
        )
    })
}

#[allow(unsafe_code)]
fn borrowed<'a>(socket: i32) -> PyResult<BorrowedFd<'a>> {
    if socket < 0 {
        return Err(PyValueError::new_err("the socket is closed"));
    }
    // SAFETY: the caller keeps the socket open until the function returns: it shuts it down, and closes it later.
    Ok(unsafe { BorrowedFd::borrow_raw(socket) })
}
