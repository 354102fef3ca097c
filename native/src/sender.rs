//! The sender: frames stamped batches as Produce requests, sends them, receives the answers and compares them.
//!
//! An answer that is not "no error, at the expected offset" is a refusal. The sender then sends and counts nothing more
//! of that partition, and goes on with the others. It ends early if the gate has closed, or if the connection is of no
//! use any more. Before it returns it receives all answers that it can.
//!
//! Invariants, which exactly-once delivery rests on:
//!
//! - A request lists a partition once. A broker keeps the last of two, drops the other and reports success.
//! - Nothing is sent after the gate has closed: another task may own the partition by then.
//! - After alignment a partition's first request is in flight alone, until it has landed. So is each request while
//!   the destination may have forgotten the producer: it would take the next batch even if the one before failed.
//! - At most `max_in_flight` requests are in flight, five of which a broker remembers for each producer.
//! - A batch has landed if its answer has the offset that the batches before it leave it.
//! - After the first refusal of a partition nothing more of it is sent, and no later answer about it is counted.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;

use crate::produce::{
    Head, answer_size, correlation_id, read_outcomes, without_length, write_length,
};
use crate::walk::Entry;

/// A broker's end of a connection, and the gate.
pub trait Peer {
    /// Whether something may still be sent.
    fn may_send(&self) -> bool;
    /// Send as much as fits now; 0 if nothing does.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Whether more may have left than `send` has returned.
    fn is_within_a_send(&self) -> bool {
        false
    }
    /// Wait until something fits.
    fn wait_to_send(&mut self) -> io::Result<()>;
    /// Wait for so many bytes, or a while for fewer, and append them; 0 if the broker has closed the connection.
    fn receive(&mut self, to: &mut Vec<u8>, expected: usize) -> io::Result<usize>;
}

pub struct Limits {
    pub max_in_flight: usize,
    /// Several requests go out in one system call, if so few are left that the broker could run out of work.
    pub refill_at: usize,
    /// A request of so many bytes of batches gets no further partition.
    pub request_bytes: usize,
    /// The destination may forget a producer whose last batch has no newer timestamp than this.
    pub forgotten_up_to_ms: i64,
    pub max_answer_bytes: usize,
}

/// A partition, and its batches in the order of their offsets.
pub struct Partition<'a> {
    /// Its topic's place in `Sender::topics`.
    pub topic: usize,
    pub number: i32,
    pub batches: Buffers<'a>,
    pub entries: &'a [Entry],
    /// Where the first batch has to land.
    pub base_offset: i64,
    /// A timestamp that the destination's state of the producer has; None if nothing has landed since alignment.
    pub newest_ms: Option<i64>,
    /// The most bytes of its batches in a request; 0 for one batch.
    pub together_bytes: usize,
    /// Whether a batch has landed at any later offset, too: other programs write to the partition.
    pub lands_later: bool,
}

impl Partition<'_> {
    /// The most bytes of its batches that a request may have.
    pub fn largest_part(&self) -> usize {
        let largest_batch = self.entries.iter().map(|entry| entry.size as usize).max();
        let largest = largest_batch.unwrap_or(0).max(self.together_bytes);
        largest.min(self.batches.len())
    }
}

/// Bytes in several buffers, as if one lay behind the other.
pub struct Buffers<'a> {
    parts: Vec<&'a [u8]>,
    /// The place of each part in all of the bytes.
    starts: Vec<usize>,
    length: usize,
}

impl<'a> Buffers<'a> {
    pub fn new(parts: Vec<&'a [u8]>) -> Self {
        let mut length = 0;
        let starts = parts
            .iter()
            .map(|part| {
                length += part.len();
                length - part.len()
            })
            .collect();
        Buffers {
            parts,
            starts,
            length,
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// The bytes of a range, as they lie in the buffers.
    fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        let first = self.starts.partition_point(|&start| start <= range.start);
        let rest = first.saturating_sub(1)..;
        self.parts[rest.clone()]
            .iter()
            .zip(&self.starts[rest])
            .take_while(move |&(_, &start)| start < range.end)
            .map(move |(&part, &start)| {
                &part[range.start.saturating_sub(start)..part.len().min(range.end - start)]
            })
            .filter(|slice| !slice.is_empty())
    }
}

/// Some batches of a partition in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub partition: usize,
    pub entries: Range<usize>,
}

/// The first refusal of a partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The refused batches.
    pub part: Part,
    /// 0 if they landed elsewhere.
    pub error_code: i16,
    pub base_offset: i64,
    pub message: Option<String>,
}

/// Batches that landed behind the offset that those before them leave them.
#[derive(Debug, PartialEq, Eq)]
pub struct Later {
    pub partition: usize,
    /// The first of the batches.
    pub first: usize,
    pub base_offset: i64,
}

/// Why the sender ended.
#[derive(Debug)]
pub enum End {
    /// All batches have landed, but for those of partitions with a refusal.
    Done,
    GateClosed,
    /// The gate closed when a part of a request may have been sent: the connection is of no use any more.
    Cut,
    /// An answer does not fit its request: likewise.
    Malformed,
    /// An answer is to another request: the connection is of no use any more.
    WrongId,
    /// Bytes came that nobody asked for: likewise.
    Surplus,
    /// An answer claims so many bytes: likewise.
    TooLarge(u32),
    /// The broker closed the connection.
    Closed,
    Failed(io::Error),
}

impl End {
    /// Whether a signal's handler ends the caller, too: no answer is waited for.
    fn is_interrupted(&self) -> bool {
        matches!(self, End::Failed(error) if error.kind() == io::ErrorKind::Interrupted)
    }
}

pub struct Summary {
    pub end: End,
    /// How many batches of each partition have landed.
    pub landed: Vec<usize>,
    pub refused: Vec<Refusal>,
    pub later: Vec<Later>,
    /// How many correlation ids are used.
    pub requests: u32,
}

/// What a partition has sent.
struct Progress {
    next: usize,
    next_byte: usize,
    landed: usize,
    /// Where the oldest request in flight has to land; None after a refusal.
    expected_offset: Option<i64>,
    in_flight: usize,
    /// Requests in flight after whose batches the producer may be forgotten.
    forgettable_in_flight: usize,
    newest_ms: Option<i64>,
}

struct InFlight {
    number: u32,
    parts: Vec<Part>,
    /// Of the answer, if it is the expected one.
    answer_size: usize,
}

pub struct Sender<'a, P: Peer + ?Sized> {
    pub peer: &'a mut P,
    pub head: Head,
    pub limits: Limits,
    /// Each topic as requests list it: its name as a compact string, or its id.
    pub topics: &'a [&'a [u8]],
    pub partitions: &'a [Partition<'a>],
    /// Of the first request.
    pub correlation_id: i32,
}

impl<'a, P: Peer + ?Sized> Sender<'a, P> {
    /// Send all batches, and return when no answer is to come.
    pub fn run(&mut self) -> Summary {
        let mut turn = Turn::of(self.topics, self.head.version, self.partitions);
        let mut end = None;
        loop {
            if end.is_none() && turn.in_flight.len() <= self.limits.refill_at {
                end = self.send_some(&mut turn);
            }
            if turn.in_flight.is_empty() || end.as_ref().is_some_and(End::is_interrupted) {
                break;
            }
            if let Err(failed) = self.receive(&mut turn, end.is_none()) {
                end = Some(failed);
                break;
            }
            if turn.in_flight.is_empty() && !turn.received.is_empty() {
                // A request of a send that did not end may have left as a whole: this may be its answer.
                if !matches!(end, Some(End::Cut | End::Failed(_))) {
                    end = Some(End::Surplus);
                }
                break;
            }
        }
        turn.into_summary(end.unwrap_or(End::Done))
    }

    /// Send as many requests as may be in flight, in one system call if it takes them.
    fn send_some(&mut self, turn: &mut Turn<'_>) -> Option<End> {
        let mut heads = Vec::new();
        let mut segments = Vec::new();
        let mut ends = Vec::new();
        let mut framed = 0;
        while turn.in_flight.len() < self.limits.max_in_flight {
            let parts = self.next_request(turn);
            if parts.is_empty() {
                break;
            }
            framed += self.frame(&parts, turn, &mut heads, &mut segments);
            ends.push(framed);
            turn.count_sent(parts, self.topics, self.partitions, &self.limits);
        }
        let mut slices: Vec<IoSlice<'_>> = segments
            .iter()
            .map(|segment| match segment {
                Segment::Head(range) => IoSlice::new(&heads[range.clone()]),
                Segment::Batches(bytes) => IoSlice::new(bytes),
            })
            .collect();
        let (sent, end) = self.send(&mut slices);
        let is_cut = turn.forget_unsent(sent, &ends) || self.peer.is_within_a_send();
        match end {
            Some(End::GateClosed) if is_cut => Some(End::Cut),
            end => end,
        }
    }

    /// Send all of it, unless the gate closes; return how much was sent.
    fn send(&mut self, mut parts: &mut [IoSlice<'_>]) -> (usize, Option<End>) {
        let mut sent = 0;
        while !parts.is_empty() {
            // Before each system call: the broker may have let it wait for long.
            if !self.peer.may_send() {
                return (sent, Some(End::GateClosed));
            }
            match self.peer.send(parts) {
                Ok(0) => {
                    if let Err(error) = self.peer.wait_to_send() {
                        return (sent, Some(End::Failed(error)));
                    }
                }
                Ok(count) => {
                    sent += count;
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(error) => return (sent, Some(End::Failed(error))),
            }
        }
        (sent, None)
    }

    /// Take one batch of each partition that may send, or several, up to a request's size.
    fn next_request(&self, turn: &mut Turn<'_>) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut size = 0;
        for _ in 0..turn.ready.len() {
            if size >= self.limits.request_bytes {
                break;
            }
            let Some(index) = turn.ready.pop_front() else {
                break;
            };
            let partition = &self.partitions[index];
            let progress = &turn.progress[index];
            if progress.expected_offset.is_none() {
                continue;
            }
            let mut next = progress.next;
            if progress.may_send(self.limits.forgotten_up_to_ms) {
                let mut bytes = partition.entries[next].size as usize;
                next += 1;
                while let Some(entry) = partition.entries.get(next) {
                    if bytes + entry.size as usize > partition.together_bytes {
                        break;
                    }
                    bytes += entry.size as usize;
                    next += 1;
                }
                size += bytes;
                parts.push(Part {
                    partition: index,
                    entries: progress.next..next,
                });
            }
            if next < partition.entries.len() {
                turn.ready.push_back(index);
            }
        }
        // A request lists each topic once, with all of its partitions.
        parts.sort_by_key(|part| self.partitions[part.partition].topic);
        parts
    }

    /// Frame the next request, and return its size.
    fn frame(
        &self,
        parts: &[Part],
        turn: &Turn<'_>,
        heads: &mut Vec<u8>,
        segments: &mut Vec<Segment<'a>>,
    ) -> usize {
        let by_topic = || by_topic(parts, self.partitions);
        let size_at = heads.len();
        let mut segment_from = heads.len();
        let mut batches_bytes = 0;
        let correlation_id = self.correlation_id_of(turn.requests);
        self.head.write(correlation_id, by_topic().count(), heads);
        for of_topic in by_topic() {
            heads.extend_from_slice(self.topics[self.partitions[of_topic[0].partition].topic]);
            write_length(of_topic.len(), heads);
            for part in of_topic {
                let partition = &self.partitions[part.partition];
                let from = turn.progress[part.partition].next_byte;
                let bytes = bytes_of(&partition.entries[part.entries.clone()]);
                heads.extend_from_slice(&partition.number.to_be_bytes());
                write_length(bytes, heads);
                segments.push(Segment::Head(segment_from..heads.len()));
                segments.extend(
                    partition
                        .batches
                        .slices(from..from + bytes)
                        .map(Segment::Batches),
                );
                segment_from = heads.len();
                batches_bytes += bytes;
                heads.push(0); // no tagged fields
            }
            heads.push(0);
        }
        heads.push(0);
        segments.push(Segment::Head(segment_from..heads.len()));
        let size = heads.len() - size_at + batches_bytes;
        heads[size_at..size_at + 4].copy_from_slice(&(size as i32 - 4).to_be_bytes());
        size
    }

    /// The correlation id of a request by its number; a broker's are of 31 bits.
    fn correlation_id_of(&self, number: u32) -> i32 {
        self.correlation_id.wrapping_add(number as i32) & i32::MAX
    }

    /// Receive at least one answer, and count what has landed, up to the first unexpected answer of all.
    fn receive(&mut self, turn: &mut Turn<'_>, sends_more: bool) -> Result<(), End> {
        let kept = if sends_more && !turn.ready.is_empty() {
            self.limits.refill_at
        } else {
            0
        };
        let wanted = turn.in_flight.len().saturating_sub(kept).max(1);
        let expected: usize = turn
            .in_flight
            .iter()
            .take(wanted)
            .map(|each| each.answer_size)
            .sum();
        loop {
            if self.take_answers(turn)? {
                return Ok(());
            }
            let missing = expected.saturating_sub(turn.received.len()).max(1);
            match self.peer.receive(&mut turn.received, missing) {
                Ok(0) => return Err(End::Closed),
                Ok(_) => {}
                Err(error) => return Err(End::Failed(error)),
            }
        }
    }

    /// Compare the whole answers that are received; return whether there was any.
    fn take_answers(&mut self, turn: &mut Turn<'_>) -> Result<bool, End> {
        let mut received = std::mem::take(&mut turn.received);
        let mut taken = 0;
        while let Some(number) = turn.in_flight.front().map(|request| request.number) {
            let rest = &received[taken..];
            let Some(frame) = next_frame(rest, self.limits.max_answer_bytes)? else {
                break;
            };
            taken += frame.end;
            let frame = &rest[frame];
            if correlation_id(frame) != Some(self.correlation_id_of(number)) {
                return Err(End::WrongId);
            }
            let request = turn.in_flight.pop_front().expect("the front one");
            self.compare(request, frame, turn).ok_or(End::Malformed)?;
        }
        received.drain(..taken);
        turn.received = received;
        Ok(taken > 0)
    }

    /// Count what has landed of a request, and keep the first refusal of each partition. Return None if its answer is
    /// malformed, or is not about each of its partitions once: then none of it counts.
    fn compare(&self, request: InFlight, frame: &[u8], turn: &mut Turn<'_>) -> Option<()> {
        let mut outcomes = HashMap::new();
        for outcome in read_outcomes(frame, self.head.version)? {
            let place = turn.place_of(outcome.topic, outcome.partition)?;
            if outcomes.insert(place, outcome).is_some() {
                return None;
            }
        }
        let is_answered = |part: &Part| outcomes.contains_key(&part.partition);
        if outcomes.len() != request.parts.len() || !request.parts.iter().all(is_answered) {
            return None;
        }
        for part in request.parts {
            let outcome = &outcomes[&part.partition];
            let progress = &mut turn.progress[part.partition];
            let Some(expected_offset) = progress.expected_offset else {
                continue; // the log's end has the outcome of what was in flight behind a refusal
            };
            let (error_code, base_offset) = (outcome.error_code, outcome.base_offset);
            let is_later = base_offset > expected_offset;
            let may_be_later = self.partitions[part.partition].lands_later;
            let is_as_expected = base_offset == expected_offset || (is_later && may_be_later);
            if error_code != 0 || !is_as_expected {
                progress.expected_offset = None;
                turn.refused.push(Refusal {
                    part,
                    error_code,
                    base_offset,
                    message: outcome.message.map(str::to_owned),
                });
                continue;
            }
            if is_later {
                progress.expected_offset = Some(base_offset);
                turn.later.push(Later {
                    partition: part.partition,
                    first: part.entries.start,
                    base_offset,
                });
            }
            turn.count_landed(&part, self.partitions, &self.limits);
        }
        Some(())
    }
}

/// A part of a request.
enum Segment<'a> {
    /// In the buffer of all fields.
    Head(Range<usize>),
    Batches(&'a [u8]),
}

impl Progress {
    /// Whether the next batch may go out now (`may_send` in `client/send_in_python.py`).
    fn may_send(&self, forgotten_up_to_ms: i64) -> bool {
        self.in_flight == 0
            || (self
                .newest_ms
                .is_some_and(|newest_ms| newest_ms > forgotten_up_to_ms)
                && self.forgettable_in_flight == 0)
    }
}

/// What changes while a sender runs.
struct Turn<'a> {
    progress: Vec<Progress>,
    /// Each topic's index, by its name or id.
    topics: HashMap<&'a [u8], usize>,
    /// Each partition's index, by its topic and number.
    places: HashMap<(usize, i32), usize>,
    /// The partitions that have batches to send, in their turn.
    ready: VecDeque<usize>,
    in_flight: VecDeque<InFlight>,
    received: Vec<u8>,
    refused: Vec<Refusal>,
    later: Vec<Later>,
    requests: u32,
}

impl<'a> Turn<'a> {
    fn of(topics: &[&'a [u8]], version: i16, partitions: &[Partition<'_>]) -> Self {
        let progress = |partition: &Partition<'_>| Progress {
            next: 0,
            next_byte: 0,
            landed: 0,
            expected_offset: Some(partition.base_offset),
            in_flight: 0,
            forgettable_in_flight: 0,
            newest_ms: partition.newest_ms,
        };
        Turn {
            progress: partitions.iter().map(progress).collect(),
            topics: topics
                .iter()
                .map(|topic| without_length(topic, version))
                .zip(0..)
                .collect(),
            places: partitions
                .iter()
                .enumerate()
                .map(|(at, each)| ((each.topic, each.number), at))
                .collect(),
            ready: (0..partitions.len())
                .filter(|&at| !partitions[at].entries.is_empty())
                .collect(),
            in_flight: VecDeque::new(),
            received: Vec::new(),
            refused: Vec::new(),
            later: Vec::new(),
            requests: 0,
        }
    }

    /// Return a partition's index.
    fn place_of(&self, topic: &[u8], number: i32) -> Option<usize> {
        let &topic = self.topics.get(topic)?;
        self.places.get(&(topic, number)).copied()
    }

    fn count_sent(
        &mut self,
        parts: Vec<Part>,
        topics: &[&[u8]],
        partitions: &[Partition<'_>],
        limits: &Limits,
    ) {
        for part in &parts {
            let progress = &mut self.progress[part.partition];
            let entries = &partitions[part.partition].entries[part.entries.clone()];
            progress.next = part.entries.end;
            progress.next_byte += bytes_of(entries);
            progress.in_flight += 1;
            progress.forgettable_in_flight += limits.may_forget(entries);
        }
        let answer_size = answer_size(by_topic(&parts, partitions).map(|each| {
            (
                topics[partitions[each[0].partition].topic].len(),
                each.len(),
            )
        }));
        self.in_flight.push_back(InFlight {
            number: self.requests,
            parts,
            answer_size,
        });
        self.requests += 1;
    }

    /// Take the requests out of flight of which only a part was sent, or nothing; then nothing more will be sent.
    /// Return whether there is one of which a part was sent.
    fn forget_unsent(&mut self, sent: usize, ends: &[usize]) -> bool {
        let whole = ends.iter().filter(|&&end| end <= sent).count();
        let last_end = if whole > 0 { ends[whole - 1] } else { 0 };
        self.in_flight
            .truncate(self.in_flight.len() - (ends.len() - whole));
        sent > last_end
    }

    fn count_landed(&mut self, part: &Part, partitions: &[Partition<'_>], limits: &Limits) {
        let progress = &mut self.progress[part.partition];
        let entries = &partitions[part.partition].entries[part.entries.clone()];
        progress.landed = part.entries.end;
        let records: i64 = entries
            .iter()
            .map(|entry| i64::from(entry.records_count))
            .sum();
        progress.expected_offset = progress.expected_offset.map(|offset| offset + records);
        progress.in_flight -= 1;
        progress.forgettable_in_flight -= limits.may_forget(entries);
        progress.newest_ms = oldest_ms(entries).filter(|&newest_ms| newest_ms >= 0);
    }

    fn into_summary(self, end: End) -> Summary {
        Summary {
            end,
            landed: self.progress.iter().map(|each| each.landed).collect(),
            refused: self.refused,
            later: self.later,
            requests: self.requests,
        }
    }
}

impl Limits {
    /// 1 if the destination may forget a producer whose last batches are these, else 0.
    fn may_forget(&self, entries: &[Entry]) -> usize {
        oldest_ms(entries)
            .is_some_and(|ms| ms <= self.forgotten_up_to_ms)
            .into()
    }
}

fn oldest_ms(entries: &[Entry]) -> Option<i64> {
    entries.iter().map(|entry| entry.max_timestamp_ms).min()
}

fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.size as usize).sum()
}

/// The parts of a request, topic by topic.
fn by_topic<'a>(
    parts: &'a [Part],
    partitions: &'a [Partition<'_>],
) -> impl Iterator<Item = &'a [Part]> {
    parts.chunk_by(|a, b| partitions[a.partition].topic == partitions[b.partition].topic)
}

/// Return where the next answer lies, without its size, if it is whole.
fn next_frame(received: &[u8], max_answer_bytes: usize) -> Result<Option<Range<usize>>, End> {
    let Some(size) = received.first_chunk::<4>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(*size);
    if size as usize > max_answer_bytes {
        return Err(End::TooLarge(size));
    }
    let end = 4 + size as usize;
    Ok((received.len() >= end).then_some(4..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const ORDERS: &[u8] = b"\x07orders";

    type Lie = fn(usize, Vec<u8>) -> Vec<u8>;

    /// A broker that appends what it is sent, and answers a request at a time.
    struct Broker<'a> {
        sent: Vec<u8>,
        /// The log end of each partition of `orders`.
        ends: HashMap<i32, i64>,
        waiting: VecDeque<Vec<u8>>,
        most_in_flight: usize,
        requests: Vec<Vec<i32>>,
        may_send: &'a Cell<usize>,
        /// Changes the answer to a request, by its number.
        lie: Lie,
        /// Bytes behind an answer.
        surplus: Lie,
        closes_after: usize,
        /// How many bytes it takes, and how many more after it was waited for.
        room: usize,
        more_room: usize,
        /// Whether it may take more than it says.
        hides_bytes: bool,
        /// Whether it is gone once it takes nothing more.
        fails_if_full: bool,
        is_interrupted_if_full: bool,
        /// How many bytes each receive has waited for.
        expected: Vec<usize>,
        /// How many answers were on their way at each receive.
        in_flight: Vec<usize>,
    }

    impl<'a> Broker<'a> {
        fn new(may_send: &'a Cell<usize>) -> Self {
            Broker {
                sent: Vec::new(),
                ends: HashMap::new(),
                waiting: VecDeque::new(),
                most_in_flight: 0,
                requests: Vec::new(),
                may_send,
                lie: |_, answer| answer,
                surplus: |_, _| Vec::new(),
                closes_after: usize::MAX,
                room: usize::MAX,
                more_room: usize::MAX,
                hides_bytes: false,
                fails_if_full: false,
                is_interrupted_if_full: false,
                expected: Vec::new(),
                in_flight: Vec::new(),
            }
        }

        /// Read the requests that were sent, whose batches are all of `RECORDS` records.
        fn append(&mut self) {
            while let Ok(Some(frame)) = next_frame(&self.sent, usize::MAX) {
                let request: Vec<u8> = self.sent.drain(..frame.end).skip(4).collect();
                // Key, version, correlation id, client id "c", tags, transactional id, acks, time-out, one topic.
                assert_eq!(request[..4], [0, 0, 0, 12]);
                assert_eq!(
                    request[8..21],
                    [0, 1, b'c', 0, 0, 0xff, 0xff, 0, 0, 0x75, 0x30, 2, 7]
                );
                let mut answer = request[4..8].to_vec();
                answer.extend_from_slice(&[0, 2]);
                answer.extend_from_slice(ORDERS);
                let mut rest = &request[27..];
                let count = usize::from(rest[0]) - 1;
                answer.push(rest[0]);
                rest = &rest[1..];
                let mut numbers = Vec::new();
                for _ in 0..count {
                    let number = i32::from_be_bytes(*rest.first_chunk().expect("a number"));
                    let batches = (usize::from(rest[4]) - 1) / SIZE as usize;
                    let end = self.ends.entry(number).or_default();
                    answer.extend_from_slice(&number.to_be_bytes());
                    answer.extend_from_slice(&[0, 0]);
                    answer.extend_from_slice(&end.to_be_bytes());
                    answer.extend_from_slice(&[0xff; 16]);
                    answer.extend_from_slice(&[1, 0, 0]);
                    *end += batches as i64 * i64::from(RECORDS);
                    rest = &rest[5 + batches * SIZE as usize + 1..];
                    numbers.push(number);
                }
                assert_eq!(rest, [0, 0]);
                answer.extend_from_slice(&[0; 6]);
                answer = (self.lie)(self.requests.len(), answer);
                let size = (answer.len() as u32).to_be_bytes();
                let surplus = (self.surplus)(self.requests.len(), answer.clone());
                self.waiting
                    .push_back([&size, &answer[..], &surplus].concat());
                self.most_in_flight = self.most_in_flight.max(self.waiting.len());
                self.requests.push(numbers);
            }
        }
    }

    impl Peer for Broker<'_> {
        fn may_send(&self) -> bool {
            let left = self.may_send.get();
            self.may_send.set(left.saturating_sub(1));
            left > 0
        }

        /// Takes `room` bytes in all, and answers the whole requests in them.
        fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            let before = self.sent.len();
            parts
                .iter()
                .for_each(|part| self.sent.extend_from_slice(part));
            self.sent.truncate(before.saturating_add(self.room));
            let count = self.sent.len() - before;
            self.room -= count;
            self.append();
            Ok(count)
        }

        fn is_within_a_send(&self) -> bool {
            self.hides_bytes && self.room == 0
        }

        fn wait_to_send(&mut self) -> io::Result<()> {
            if self.fails_if_full {
                return Err(io::Error::from_raw_os_error(32));
            }
            if self.is_interrupted_if_full {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "a handler's"));
            }
            self.room = self.more_room;
            Ok(())
        }

        fn receive(&mut self, to: &mut Vec<u8>, expected: usize) -> io::Result<usize> {
            self.expected.push(expected);
            self.in_flight.push(self.waiting.len());
            if self.closes_after == 0 {
                return Ok(0);
            }
            self.closes_after -= 1;
            let answer = self.waiting.pop_front().expect("a request");
            to.extend_from_slice(&answer);
            Ok(answer.len())
        }
    }

    const SIZE: u32 = 62;
    const RECORDS: u32 = 3;

    struct Case {
        batches: usize,
        partitions: i32,
        together_bytes: usize,
        newest_ms: Option<i64>,
        forgotten_up_to_ms: i64,
        /// The size of the buffers that the batches lie in.
        buffer_bytes: usize,
        lands_later: bool,
    }

    const CASE: Case = Case {
        batches: 8,
        partitions: 2,
        buffer_bytes: usize::MAX,
        together_bytes: 0,
        newest_ms: None,
        forgotten_up_to_ms: 99,
        lands_later: false,
    };

    fn run<'a>(case: &Case, broker: Broker<'a>) -> (Summary, Broker<'a>) {
        let entry = Entry {
            size: SIZE,
            records_count: RECORDS,
            max_timestamp_ms: 100,
            leader_epoch: 0,
        };
        run_entries(case, broker, &vec![entry; case.batches])
    }

    fn run_entries<'a>(
        case: &Case,
        mut broker: Broker<'a>,
        entries: &[Entry],
    ) -> (Summary, Broker<'a>) {
        let batches = vec![1; SIZE as usize * entries.len()];
        let partitions: Vec<Partition<'_>> = (0..case.partitions)
            .map(|number| Partition {
                topic: 0,
                number,
                batches: Buffers::new(batches.chunks(case.buffer_bytes).collect()),
                entries,
                base_offset: 0,
                newest_ms: case.newest_ms,
                together_bytes: case.together_bytes,
                lands_later: case.lands_later,
            })
            .collect();
        let mut sender = Sender {
            peer: &mut broker,
            head: Head {
                version: 12,
                client_id: b"c".to_vec(),
                acks: -1,
                timeout_ms: 30_000,
            },
            limits: Limits {
                max_in_flight: 5,
                refill_at: 2,
                request_bytes: 1 << 20,
                forgotten_up_to_ms: case.forgotten_up_to_ms,
                max_answer_bytes: 1000,
            },
            topics: &[ORDERS],
            partitions: &partitions,
            correlation_id: i32::MAX - 1, // they begin again at 0
        };
        let summary = sender.run();
        (summary, broker)
    }

    #[test]
    fn all_batches_land_the_first_request_alone_and_five_in_flight() {
        let gate = Cell::new(usize::MAX);
        let (summary, broker) = run(&CASE, Broker::new(&gate));
        assert!(matches!(summary.end, End::Done));
        assert_eq!(summary.landed, [8, 8]);
        assert_eq!(broker.requests, vec![vec![0, 1]; 8]);
        assert_eq!(broker.most_in_flight, 5);
    }

    #[test]
    fn one_request_is_in_flight_if_the_producer_may_be_forgotten() {
        let gate = Cell::new(usize::MAX);
        let (summary, broker) = run(
            &Case {
                forgotten_up_to_ms: 100,
                ..CASE
            },
            Broker::new(&gate),
        );
        assert_eq!(
            (summary.landed, broker.requests.len(), broker.most_in_flight),
            (vec![8, 8], 8, 1)
        );
    }

    #[test]
    fn several_batches_go_together_up_to_a_size() {
        // In one buffer, one in each, two in each, and batches that two buffers share.
        for buffer_bytes in [usize::MAX, 62, 124, 100] {
            let gate = Cell::new(usize::MAX);
            let (summary, broker) = run(
                &Case {
                    together_bytes: 3 * 62 - 1,
                    partitions: 1,
                    buffer_bytes,
                    ..CASE
                },
                Broker::new(&gate),
            );
            assert_eq!((summary.landed, broker.requests.len()), (vec![8], 4));
        }
    }

    #[test]
    fn range_of_several_buffers_has_the_bytes_of_all() {
        let buffers = Buffers::new(vec![b"ab", b"", b"c", b"def"]);
        for start in 0..=6 {
            for end in start..=6 {
                let joined: Vec<u8> = buffers.slices(start..end).flatten().copied().collect();
                assert_eq!(joined, b"abcdef"[start..end]);
            }
        }
    }

    /// Answers that are not the expected one, each to the fourth request.
    const LIES: [Lie; 5] = [
        |request, answer| changed(request, answer, 25, 1), // the base offset
        |request, answer| changed(request, answer, 18, 74), // an error
        |request, answer| changed(request, answer, 16, 1), // partition 1 twice
        |request, answer| changed(request, answer, 7, 1),  // another topic
        |request, mut answer| {
            answer.truncate(answer.len() - usize::from(request == 3));
            answer
        },
    ];

    fn changed(request: usize, mut answer: Vec<u8>, at: usize, by: u8) -> Vec<u8> {
        answer[at] = answer[at].wrapping_add(if request == 3 { by } else { 0 });
        answer
    }

    fn refusal(partition: usize, batch: usize, error_code: i16, base_offset: i64) -> Refusal {
        Refusal {
            part: Part {
                partition,
                entries: batch..batch + 1,
            },
            error_code,
            base_offset,
            message: None,
        }
    }

    #[test]
    fn refused_partition_gets_nothing_more_and_the_others_go_on() {
        // The error of partition 0, and its base offset, in the answer to the fourth request.
        for (at, expected) in [(19, refusal(0, 3, 74, 9)), (27, refusal(0, 3, 0, 83))] {
            let gate = Cell::new(usize::MAX);
            let lie: Lie = match at {
                19 => |request, answer| changed(request, answer, 19, 74),
                _ => |request, answer| changed(request, answer, 27, 74),
            };
            let broker = Broker {
                lie,
                ..Broker::new(&gate)
            };
            let (summary, broker) = run(&CASE, broker);
            assert!(matches!(summary.end, End::Done));
            assert_eq!(summary.landed, [3, 8]);
            assert_eq!(summary.refused, [expected]);
            // What was in flight behind it, and nothing more.
            let of_refused = broker
                .requests
                .iter()
                .filter(|listed| listed.contains(&0))
                .count();
            assert_eq!((broker.requests.len(), of_refused), (8, 6));
        }
    }

    #[test]
    fn batch_that_may_land_later_moves_those_behind_it() {
        let gate = Cell::new(usize::MAX);
        // Another program writes a record to partition 0 before the fourth request, and one before the sixth.
        let lie: Lie = |request, mut answer| {
            answer[27] += u8::from(request >= 3) + u8::from(request >= 5);
            answer
        };
        let broker = Broker {
            lie,
            ..Broker::new(&gate)
        };
        let case = Case {
            lands_later: true,
            ..CASE
        };
        let (summary, _) = run(&case, broker);
        assert!(matches!(summary.end, End::Done));
        let moved = |first, base_offset| Later {
            partition: 0,
            first,
            base_offset,
        };
        assert_eq!(summary.landed, [8, 8]);
        assert_eq!(summary.refused, []);
        assert_eq!(summary.later, [moved(3, 10), moved(5, 17)]);
    }

    #[test]
    fn answer_behind_a_refusal_counts_nothing_though_it_has_the_offset_of_the_refused_batch() {
        let gate = Cell::new(usize::MAX);
        // The second request of both partitions is refused; the third lands where the second had to.
        let lie = |request, mut answer: Vec<u8>| {
            match request {
                1 => answer[19] = 6,
                2 => answer[27] = RECORDS as u8,
                _ => {}
            }
            answer
        };
        let broker = Broker {
            lie,
            ..Broker::new(&gate)
        };
        let (summary, _) = run(&CASE, broker);
        assert_eq!(summary.landed, [1, 8]);
        assert_eq!(summary.refused, [refusal(0, 1, 6, RECORDS.into())]);
    }

    #[test]
    fn answer_that_does_not_fit_its_request_ends_the_sender_and_counts_nothing() {
        for (number, lie) in LIES[2..].iter().enumerate() {
            let gate = Cell::new(usize::MAX);
            let broker = Broker {
                lie: *lie,
                ..Broker::new(&gate)
            };
            let (summary, _) = run(&CASE, broker);
            assert!(matches!(summary.end, End::Malformed), "lie {number}");
            assert_eq!(summary.landed, [3, 3], "lie {number}");
            assert_eq!(summary.refused, []);
        }
    }

    #[test]
    fn gate_that_closes_within_a_request_cuts_it_also_if_the_peer_hides_what_it_took() {
        const REQUEST: usize = 170;
        // The answer to a request that left within the cut send comes with the last one that is awaited.
        let hidden: Lie = |request, answer| if request == 2 { answer } else { vec![] };
        let nothing: Lie = |_, _| vec![];
        for (room, hides_bytes, surplus, is_cut) in [
            (3 * REQUEST, false, nothing, false),
            (3 * REQUEST + 1, false, nothing, true),
            (3 * REQUEST, true, nothing, true),
            (3 * REQUEST, true, hidden, true),
        ] {
            let gate = Cell::new(2);
            let broker = Broker {
                room,
                more_room: 0,
                hides_bytes,
                surplus,
                ..Broker::new(&gate)
            };
            let (summary, _) = run(&CASE, broker);
            assert_eq!(matches!(summary.end, End::Cut), is_cut, "{room}");
            assert_eq!(matches!(summary.end, End::GateClosed), !is_cut, "{room}");
            assert_eq!(summary.landed, [3, 3], "those in flight are received");
        }
    }

    #[test]
    fn nothing_is_counted_from_the_first_answer_to_another_request_on() {
        let gate = Cell::new(usize::MAX);
        let lie = |request, answer| changed(request, answer, 3, 1);
        let broker = Broker {
            lie,
            ..Broker::new(&gate)
        };
        let (summary, _) = run(&CASE, broker);
        assert!(matches!(summary.end, End::WrongId));
        assert_eq!(summary.landed, [3, 3]);
        assert_eq!(summary.refused, []);
    }

    #[test]
    fn nothing_is_sent_after_the_gate_has_closed() {
        // The first request goes alone, then five at once, then the rest.
        for (open_for, sent) in [(0, 0), (1, 1), (2, 6)] {
            let gate = Cell::new(open_for);
            let (summary, broker) = run(&CASE, Broker::new(&gate));
            assert!(matches!(summary.end, End::GateClosed));
            assert_eq!(
                (broker.requests.len(), summary.landed),
                (sent, vec![sent; 2])
            );
        }
    }

    #[test]
    fn broker_that_takes_a_few_bytes_at_a_time_gets_all() {
        let gate = Cell::new(usize::MAX);
        let broker = Broker {
            room: 7,
            more_room: 7,
            ..Broker::new(&gate)
        };
        let (summary, broker) = run(&CASE, broker);
        assert!(matches!(summary.end, End::Done));
        assert_eq!((summary.landed, broker.requests.len()), (vec![8, 8], 8));
    }

    #[test]
    fn batches_after_which_the_producer_may_be_forgotten_are_in_flight_alone() {
        // In the middle is a batch of long ago: the one before it may still be in flight, none behind it.
        let entries: Vec<Entry> = [100, 100, 50, 100, 100]
            .map(|max_timestamp_ms| Entry {
                size: SIZE,
                records_count: RECORDS,
                max_timestamp_ms,
                leader_epoch: 0,
            })
            .into();
        let gate = Cell::new(usize::MAX);
        let (summary, broker) = run_entries(&CASE, Broker::new(&gate), &entries);
        assert_eq!(summary.landed, [5, 5]);
        assert_eq!(broker.in_flight, [1, 2, 1, 1, 1]);
    }

    #[test]
    fn receive_waits_for_the_answers_that_are_needed() {
        const ANSWER: usize = 90;
        let gate = Cell::new(usize::MAX);
        let (_, broker) = run(&CASE, Broker::new(&gate));
        // The first; three of five, so that more is sent; then nothing is left to send, and all are waited for.
        let expected = [1, 3, 2, 1, 4, 3, 2, 1].map(|answers| answers * ANSWER);
        assert_eq!(broker.expected, expected);
    }

    #[test]
    fn requests_without_an_answer_are_not_counted() {
        let gate = Cell::new(usize::MAX);
        let (summary, broker) = run(
            &CASE,
            Broker {
                closes_after: 2,
                ..Broker::new(&gate)
            },
        );
        assert!(matches!(summary.end, End::Closed));
        assert_eq!(summary.landed, [2, 2]);
        assert!(broker.requests.len() > 2);
    }

    #[test]
    fn failed_send_stays_the_end_whatever_is_answered() {
        let gate = Cell::new(usize::MAX);
        let lie = |request: usize, answer| changed(request + 2, answer, 25, 1); // the second
        let broker = Broker {
            lie,
            // The first request, and two of five.
            room: 3 * 170,
            fails_if_full: true,
            ..Broker::new(&gate)
        };
        let (summary, _) = run(&CASE, broker);
        assert!(matches!(summary.end, End::Failed(_)), "{:?}", summary.end);
        assert_eq!(summary.landed, [1, 3]);
    }

    #[test]
    fn interrupted_send_waits_for_no_answer() {
        let gate = Cell::new(usize::MAX);
        let broker = Broker {
            // The first request, and two of five.
            room: 3 * 170,
            is_interrupted_if_full: true,
            ..Broker::new(&gate)
        };
        let (summary, broker) = run(&CASE, broker);
        assert!(summary.end.is_interrupted(), "{:?}", summary.end);
        assert_eq!((summary.landed, broker.waiting.len()), (vec![1, 1], 2));
    }

    #[test]
    fn answer_without_a_request_counts_for_no_later_one() {
        let gate = Cell::new(usize::MAX);
        // The first request is in flight alone; its answer comes with one to the second, which is not sent yet.
        let surplus = |request, mut second: Vec<u8>| {
            second[3] = 0xff; // i32::MAX, behind i32::MAX - 1
            // The base offsets of both partitions.
            second[27] += RECORDS as u8;
            second[60] += RECORDS as u8;
            let size = (second.len() as u32).to_be_bytes();
            if request == 0 {
                [&size, &second[..]].concat()
            } else {
                Vec::new()
            }
        };
        let broker = Broker {
            surplus,
            ..Broker::new(&gate)
        };
        let (summary, broker) = run(&CASE, broker);
        assert!(matches!(summary.end, End::Surplus), "{:?}", summary.end);
        assert_eq!((summary.landed, broker.requests.len()), (vec![1, 1], 1));
    }

    #[test]
    fn answer_that_claims_too_many_bytes_is_not_received() {
        let gate = Cell::new(usize::MAX);
        let lie = |_, answer: Vec<u8>| [answer, vec![0; 1000]].concat();
        let (summary, _) = run(
            &CASE,
            Broker {
                lie,
                ..Broker::new(&gate)
            },
        );
        assert!(
            matches!(summary.end, End::TooLarge(1086)),
            "{:?}",
            summary.end
        );
        assert_eq!(summary.landed, [0, 0]);
    }
}
