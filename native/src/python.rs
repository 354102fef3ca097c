//! The module's functions, and the buffers that they borrow from Python.
//!
//! The only unsafe code is here: a buffer of Python's becomes a slice. A `PyBuffer` keeps its memory in place until
//! it is released, which happens when the function returns. Python's own rule for the buffers of a mirror is that
//! one thread works on each, so nobody else reads or writes them meanwhile. The gate is the exception, and atomic.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::Timespec;

use crate::produce::Head;
use crate::pump::{End, Limits, Partition, Pump, Summary};
use crate::socket::Socket;
use crate::walk::{Entry, Stamp, stamp_plain as walk};

/// The version of the functions' signatures; `shoal.native` takes no other.
const INTERFACE: u32 = 1;

/// An entry of an index: size, records, largest timestamp in milliseconds, leader epoch; little-endian.
const ENTRY_BYTES: usize = 20;

/// Topic, number, batches, their index, the first one's offset, whether it is established and remembered.
type Lot = (usize, i32, PyBuffer<u8>, Vec<u8>, i64, bool, bool);
/// Partition, first batch, the one after the last.
type Part = (usize, usize, usize);
type HandedBack<'py> = (Vec<Part>, Option<Bound<'py, PyBytes>>);
type PumpResult<'py> = (&'static str, i64, Vec<usize>, Vec<HandedBack<'py>>, u32);

#[pymodule]
fn shoal_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_function(wrap_pyfunction!(stamp_plain, module)?)?;
    module.add_function(wrap_pyfunction!(pump, module)?)
}

/// Stamp the plain batches of a record set from `position` on, in place.
///
/// Returns where the first other batch begins, how many records the stamped ones have, their smallest largest
/// timestamp in milliseconds, and an index: for each batch its size, records, largest timestamp and leader epoch at
/// the source, as `struct.Struct("<IIqi")`.
#[pyfunction]
#[pyo3(signature = (record_set, position, *, first_offset, end_offset, producer_id, producer_epoch, base_sequence))]
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
) -> PyResult<(usize, u64, i64, Bound<'py, PyBytes>)> {
    let stamp = Stamp {
        first_offset,
        end_offset,
        producer_id,
        producer_epoch,
        base_sequence,
    };
    let bytes = writable(&mut record_set)?;
    if position > bytes.len() {
        return Err(PyValueError::new_err(format!(
            "position {position} is behind {} bytes",
            bytes.len()
        )));
    }
    let mut entries = Vec::new();
    let end = py.detach(|| walk(bytes, position, &stamp, &mut entries));
    let records = entries
        .iter()
        .map(|each| u64::from(each.records_count))
        .sum();
    let oldest_ms = entries
        .iter()
        .map(|each| each.max_timestamp_ms)
        .min()
        .unwrap_or(i64::MAX);
    Ok((
        end,
        records,
        oldest_ms,
        PyBytes::new(py, &index_of(&entries)),
    ))
}

/// Send lots of stamped batches on a connected socket, and compare the answers, without the interpreter's lock.
#[pyfunction]
#[pyo3(signature = (
    socket, topics, partitions, *, version, client_id, acks, timeout_ms, correlation_id, max_in_flight, refill_at,
    request_bytes, together_bytes, max_answer_bytes, wait_ms, gate
))]
#[allow(clippy::too_many_arguments)]
fn pump<'py>(
    py: Python<'py>,
    socket: i32,
    topics: Vec<Vec<u8>>,
    partitions: Vec<Lot>,
    version: i16,
    client_id: Vec<u8>,
    acks: i16,
    timeout_ms: i32,
    correlation_id: i32,
    max_in_flight: usize,
    refill_at: usize,
    request_bytes: usize,
    together_bytes: usize,
    max_answer_bytes: usize,
    wait_ms: u64,
    gate: PyBuffer<u64>,
) -> PyResult<PumpResult<'py>> {
    let indexes: Vec<Vec<Entry>> = partitions
        .iter()
        .map(|each| entries_of(&each.3))
        .collect::<PyResult<_>>()?;
    let mut lots = Vec::with_capacity(partitions.len());
    for ((topic, number, batches, _, base_offset, is_established, is_remembered), entries) in
        partitions.iter().zip(&indexes)
    {
        let batches = readable(batches)?;
        let indexed: usize = entries.iter().map(|each| each.size as usize).sum();
        if *topic >= topics.len() || indexed != batches.len() {
            return Err(PyValueError::new_err(format!(
                "partition {number}: topic {topic} of {}, {indexed} bytes in the index of {}",
                topics.len(),
                batches.len()
            )));
        }
        lots.push(Partition {
            topic: *topic,
            number: *number,
            batches,
            entries,
            base_offset: *base_offset,
            is_established: *is_established,
            is_remembered: *is_remembered,
        });
    }
    let (gate_until, heard_at) = gate_of(&gate)?;
    let wait = Timespec {
        tv_sec: (wait_ms / 1000) as i64,
        tv_nsec: (wait_ms % 1000 * 1_000_000) as _,
    };
    let mut pump = Pump {
        peer: Socket {
            socket: borrowed(socket)?,
            gate: gate_until,
            heard_at,
            wait,
        },
        head: Head {
            version,
            client_id,
            acks,
            timeout_ms,
        },
        limits: Limits {
            max_in_flight,
            refill_at,
            request_bytes,
            together_bytes,
            max_answer_bytes,
        },
        topics: &topics,
        partitions: &lots,
        correlation_id,
    };
    let summary = py.detach(|| pump.run());
    Ok(to_python(py, summary))
}

fn to_python(py: Python<'_>, summary: Summary) -> PumpResult<'_> {
    let (end, detail) = match summary.end {
        End::Done => ("done", 0),
        End::GateClosed => ("gate closed", 0),
        End::Unexpected => ("unexpected", 0),
        End::TooLarge(size) => ("too large", i64::from(size)),
        End::Closed => ("closed", 0),
        End::Failed(error) if error.kind() == std::io::ErrorKind::TimedOut => ("timed out", 0),
        End::Failed(error) => ("failed", error.raw_os_error().unwrap_or(0).into()),
    };
    let handed_back = summary
        .handed_back
        .into_iter()
        .map(|each| {
            let parts = each
                .parts
                .into_iter()
                .map(|part| (part.partition, part.entries.start, part.entries.end));
            (
                parts.collect(),
                each.answer.map(|answer| PyBytes::new(py, &answer)),
            )
        })
        .collect();
    (end, detail, summary.landed, handed_back, summary.requests)
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
    Ok(entries
        .iter()
        .map(|entry| Entry {
            size: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
            records_count: u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]),
            max_timestamp_ms: i64::from_le_bytes(entry[8..16].try_into().expect("eight bytes")),
            leader_epoch: i32::from_le_bytes([entry[16], entry[17], entry[18], entry[19]]),
        })
        .collect())
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

/// Return the gate and the time of the last answer, two words that Python's threads read and write.
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
