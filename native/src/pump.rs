//! The pump: frames stamped batches as Produce requests, sends them, receives the answers and compares them.
//!
//! It ends as soon as anything is not as expected, and lets Python decide: an answer that is not "no error, at the
//! expected offset", a gate that has closed, a connection that is gone. Before it returns it receives all answers
//! that it can, and hands back each request whose batches it could not count as landed, with its answer.
//!
//! Invariants, which exactly-once delivery rests on:
//!
//! - A request lists a partition once. A broker keeps the last of two, drops the other and reports success.
//! - Nothing is sent after the gate has closed: another task may own the partition by then.
//! - After alignment a partition's first request is in flight alone, until it has landed. So it is if the
//!   destination may have forgotten the producer: it would take the next batch even if the one before failed.
//! - At most `max_in_flight` requests are in flight, five of which a broker remembers for each producer.
//! - A batch has landed if its answer has the offset that the batches before it leave it.
//! - After the first unexpected answer nothing more is sent, and no later answer is counted here.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;

use crate::produce::{Head, correlation_id, read_landed, write_length};
use crate::walk::Entry;

/// A broker's end of a connection, and the gate.
pub trait Peer {
    /// Whether something may still be sent.
    fn may_send(&self) -> bool;
    /// Send all of it.
    fn send(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// Wait for bytes and append them; 0 if the broker has closed the connection.
    fn receive(&mut self, to: &mut Vec<u8>) -> io::Result<usize>;
}

pub struct Limits {
    pub max_in_flight: usize,
    /// Several requests go out in one system call, if so few are left that the broker could run out of work.
    pub refill_at: usize,
    /// The most bytes of batches in one request.
    pub request_bytes: usize,
    /// The most bytes of one partition's batches in a request; 0 for one batch.
    pub together_bytes: usize,
    pub max_answer_bytes: usize,
}

/// A partition's batches, one after the other.
pub struct Partition<'a> {
    /// Its topic's place in `Pump::topics`.
    pub topic: usize,
    pub number: i32,
    pub batches: &'a [u8],
    pub entries: &'a [Entry],
    /// Where the first batch has to land.
    pub base_offset: i64,
    /// Whether a request has landed since it was aligned.
    pub is_established: bool,
    /// Whether the destination surely remembers the producer, so that requests may follow one another.
    pub is_remembered: bool,
}

/// Some batches of a partition in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub partition: usize,
    pub entries: Range<usize>,
}

/// A request whose batches are not counted as landed.
#[derive(Debug, PartialEq, Eq)]
pub struct HandedBack {
    pub parts: Vec<Part>,
    /// The answer from its correlation id on; None if it did not come.
    pub answer: Option<Vec<u8>>,
}

/// Why the pump ended.
#[derive(Debug)]
pub enum End {
    /// All batches have landed.
    Done,
    GateClosed,
    /// The first of the requests that are handed back has an answer that is not the expected one.
    Unexpected,
    /// An answer claims so many bytes.
    TooLarge(u32),
    /// The broker closed the connection.
    Closed,
    Failed(io::Error),
}

pub struct Summary {
    pub end: End,
    /// How many batches of each partition have landed.
    pub landed: Vec<usize>,
    pub handed_back: Vec<HandedBack>,
    pub requests: u32,
}

/// What a partition has sent.
struct Progress {
    next: usize,
    next_byte: usize,
    landed: usize,
    expected_offset: i64,
    in_flight: usize,
    is_established: bool,
    /// The last request in whose answer it was found.
    answered_in: u32,
}

struct InFlight {
    number: u32,
    parts: Vec<Part>,
}

pub struct Pump<'a, P: Peer> {
    pub peer: P,
    pub head: Head,
    pub limits: Limits,
    /// Each topic as requests list it: its name as a compact string, or its id.
    pub topics: &'a [Vec<u8>],
    pub partitions: &'a [Partition<'a>],
    /// Of the first request.
    pub correlation_id: i32,
}

impl<P: Peer> Pump<'_, P> {
    /// Send all batches, and return when nothing is in flight.
    pub fn run(&mut self) -> Summary {
        let mut turn = Turn::of(self.partitions);
        let mut end = None;
        loop {
            if end.is_none() && turn.in_flight.len() <= self.limits.refill_at {
                end = self.send_some(&mut turn);
            }
            if turn.in_flight.is_empty() {
                break;
            }
            match self.receive(&mut turn) {
                Ok(()) if turn.handed_back.is_empty() => {}
                Ok(()) => end = Some(End::Unexpected),
                Err(failed) => {
                    end = Some(failed);
                    break;
                }
            }
        }
        // Bytes that nobody asked for: whatever they are, the next answer on this connection cannot be found.
        let surplus =
            (turn.in_flight.is_empty() && !turn.received.is_empty()).then_some(End::Unexpected);
        turn.into_summary(end.or(surplus).unwrap_or(End::Done))
    }

    /// Send as many requests as may be in flight, in one system call if it takes them.
    fn send_some(&mut self, turn: &mut Turn) -> Option<End> {
        let mut heads = Vec::new();
        let mut segments = Vec::new();
        let mut end = None;
        while turn.in_flight.len() < self.limits.max_in_flight {
            let parts = self.next_request(turn);
            if parts.is_empty() {
                break;
            }
            if !self.peer.may_send() {
                end = Some(End::GateClosed);
                break;
            }
            let correlation_id = self.correlation_id.wrapping_add(turn.requests as i32) & i32::MAX;
            self.frame(&parts, correlation_id, turn, &mut heads, &mut segments);
            turn.count_sent(parts, self.partitions);
        }
        if segments.is_empty() {
            return end;
        }
        let mut slices: Vec<IoSlice<'_>> = segments
            .iter()
            .map(|segment| match segment {
                Segment::Head(range) => IoSlice::new(&heads[range.clone()]),
                Segment::Batches(partition, range) => {
                    IoSlice::new(&self.partitions[*partition].batches[range.clone()])
                }
            })
            .collect();
        match self.peer.send(&mut slices) {
            Ok(()) => end,
            Err(error) => Some(End::Failed(error)),
        }
    }

    /// Take one batch of each partition that may send, or several, up to a request's size.
    fn next_request(&self, turn: &mut Turn) -> Vec<Part> {
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
            let may_follow = progress.is_established && partition.is_remembered;
            let mut next = progress.next;
            if progress.in_flight == 0 || may_follow {
                let mut bytes = partition.entries[next].size as usize;
                next += 1;
                while let Some(entry) = partition.entries.get(next) {
                    if bytes + entry.size as usize > self.limits.together_bytes {
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

    fn frame(
        &self,
        parts: &[Part],
        correlation_id: i32,
        turn: &Turn,
        heads: &mut Vec<u8>,
        segments: &mut Vec<Segment>,
    ) {
        let by_topic = || {
            parts.chunk_by(|a, b| {
                self.partitions[a.partition].topic == self.partitions[b.partition].topic
            })
        };
        let size_at = heads.len();
        let mut segment_from = heads.len();
        let mut batches_bytes = 0;
        self.head.write(correlation_id, by_topic().count(), heads);
        for of_topic in by_topic() {
            heads.extend_from_slice(&self.topics[self.partitions[of_topic[0].partition].topic]);
            write_length(of_topic.len(), heads);
            for part in of_topic {
                let partition = &self.partitions[part.partition];
                let from = turn.progress[part.partition].next_byte;
                let bytes: usize = partition.entries[part.entries.clone()]
                    .iter()
                    .map(|entry| entry.size as usize)
                    .sum();
                heads.extend_from_slice(&partition.number.to_be_bytes());
                write_length(bytes, heads);
                segments.push(Segment::Head(segment_from..heads.len()));
                segments.push(Segment::Batches(part.partition, from..from + bytes));
                segment_from = heads.len();
                batches_bytes += bytes;
                heads.push(0); // no tagged fields
            }
            heads.push(0);
        }
        heads.push(0);
        segments.push(Segment::Head(segment_from..heads.len()));
        let size = heads.len() - size_at - 4 + batches_bytes;
        heads[size_at..size_at + 4].copy_from_slice(&(size as i32).to_be_bytes());
    }

    /// Receive at least one answer, and count what has landed, up to the first unexpected answer of all.
    fn receive(&mut self, turn: &mut Turn) -> Result<(), End> {
        loop {
            let mut taken = 0;
            while let Some(frame) =
                next_frame(&turn.received[taken..], self.limits.max_answer_bytes)?
            {
                let from = taken + frame.start;
                taken += frame.end;
                let Some(request) = turn.in_flight.pop_front() else {
                    break;
                };
                if turn.handed_back.is_empty() && self.compare(&request, from..taken, turn) {
                    turn.count_landed(&request, self.partitions);
                } else {
                    let answer = Some(turn.received[from..taken].to_vec());
                    turn.handed_back.push(HandedBack {
                        parts: request.parts,
                        answer,
                    });
                }
                if turn.in_flight.is_empty() {
                    break;
                }
            }
            turn.received.drain(..taken);
            if taken > 0 {
                return Ok(());
            }
            match self.peer.receive(&mut turn.received) {
                Ok(0) => return Err(End::Closed),
                Ok(_) => {}
                Err(error) => return Err(End::Failed(error)),
            }
        }
    }

    /// Whether an answer says that each batch of a request landed where it has to.
    fn compare(&self, request: &InFlight, frame: Range<usize>, turn: &mut Turn) -> bool {
        let frame = &turn.received[frame];
        let expected_id = self.correlation_id.wrapping_add(request.number as i32) & i32::MAX;
        if correlation_id(frame) != Some(expected_id) {
            return false;
        }
        let mut answered = 0;
        let progress = &mut turn.progress;
        let places = &turn.places;
        let read = read_landed(frame, self.head.version, |landed| {
            let Some(&index) = self
                .topics
                .iter()
                .position(|topic| topic == landed.topic)
                .and_then(|topic| places.get(&(topic, landed.partition)))
            else {
                return false;
            };
            let progress = &mut progress[index];
            answered += 1;
            // It is answered once, it was asked for (below), and it is at its place.
            let is_first = progress.answered_in != request.number;
            progress.answered_in = request.number;
            is_first && landed.base_offset == progress.expected_offset
        });
        read.is_some()
            && answered == request.parts.len()
            && request
                .parts
                .iter()
                .all(|part| turn.progress[part.partition].answered_in == request.number)
    }
}

enum Segment {
    Head(Range<usize>),
    Batches(usize, Range<usize>),
}

/// What changes while a pump runs.
struct Turn {
    progress: Vec<Progress>,
    /// Each partition's index, by its topic and number.
    places: HashMap<(usize, i32), usize>,
    /// The partitions that have batches to send, in their turn.
    ready: VecDeque<usize>,
    in_flight: VecDeque<InFlight>,
    received: Vec<u8>,
    handed_back: Vec<HandedBack>,
    requests: u32,
}

impl Turn {
    fn of(partitions: &[Partition<'_>]) -> Self {
        let progress = |partition: &Partition<'_>| Progress {
            next: 0,
            next_byte: 0,
            landed: 0,
            expected_offset: partition.base_offset,
            in_flight: 0,
            is_established: partition.is_established,
            answered_in: u32::MAX,
        };
        Turn {
            progress: partitions.iter().map(progress).collect(),
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
            handed_back: Vec::new(),
            requests: 0,
        }
    }

    fn count_sent(&mut self, parts: Vec<Part>, partitions: &[Partition<'_>]) {
        for part in &parts {
            let progress = &mut self.progress[part.partition];
            let entries = &partitions[part.partition].entries[part.entries.clone()];
            progress.next = part.entries.end;
            progress.next_byte += entries
                .iter()
                .map(|entry| entry.size as usize)
                .sum::<usize>();
            progress.in_flight += 1;
        }
        self.in_flight.push_back(InFlight {
            number: self.requests,
            parts,
        });
        self.requests += 1;
    }

    fn count_landed(&mut self, request: &InFlight, partitions: &[Partition<'_>]) {
        for part in &request.parts {
            let progress = &mut self.progress[part.partition];
            let entries = &partitions[part.partition].entries[part.entries.clone()];
            progress.landed = part.entries.end;
            progress.expected_offset += entries
                .iter()
                .map(|entry| i64::from(entry.records_count))
                .sum::<i64>();
            progress.in_flight -= 1;
            progress.is_established = true;
        }
    }

    fn into_summary(self, end: End) -> Summary {
        let unanswered = self.in_flight.into_iter().map(|each| HandedBack {
            parts: each.parts,
            answer: None,
        });
        Summary {
            end,
            landed: self.progress.iter().map(|each| each.landed).collect(),
            handed_back: self.handed_back.into_iter().chain(unanswered).collect(),
            requests: self.requests,
        }
    }
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
        lie: fn(usize, Vec<u8>) -> Vec<u8>,
        closes_after: usize,
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
                closes_after: usize::MAX,
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
                self.requests.push(numbers);
                self.waiting
                    .push_back([(answer.len() as u32).to_be_bytes().to_vec(), answer].concat());
                self.most_in_flight = self.most_in_flight.max(self.waiting.len());
            }
        }
    }

    impl Peer for Broker<'_> {
        fn may_send(&self) -> bool {
            let left = self.may_send.get();
            self.may_send.set(left.saturating_sub(1));
            left > 0
        }

        fn send(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
            parts
                .iter()
                .for_each(|part| self.sent.extend_from_slice(part));
            self.append();
            Ok(())
        }

        fn receive(&mut self, to: &mut Vec<u8>) -> io::Result<usize> {
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
        is_remembered: bool,
    }

    const CASE: Case = Case {
        batches: 8,
        partitions: 2,
        together_bytes: 0,
        is_remembered: true,
    };

    fn run(case: &Case, broker: Broker<'_>) -> (Summary, Vec<Vec<i32>>, usize) {
        let entry = Entry {
            size: SIZE,
            records_count: RECORDS,
            max_timestamp_ms: 0,
            leader_epoch: 0,
        };
        let entries = vec![entry; case.batches];
        let batches = vec![1; SIZE as usize * case.batches];
        let partitions: Vec<Partition<'_>> = (0..case.partitions)
            .map(|number| Partition {
                topic: 0,
                number,
                batches: &batches,
                entries: &entries,
                base_offset: 0,
                is_established: false,
                is_remembered: case.is_remembered,
            })
            .collect();
        let mut pump = Pump {
            peer: broker,
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
                together_bytes: case.together_bytes,
                max_answer_bytes: 1000,
            },
            topics: &[ORDERS.to_vec()],
            partitions: &partitions,
            correlation_id: i32::MAX - 1, // they begin again at 0
        };
        let summary = pump.run();
        (summary, pump.peer.requests, pump.peer.most_in_flight)
    }

    #[test]
    fn all_batches_land_the_first_request_alone_and_five_in_flight() {
        let gate = Cell::new(usize::MAX);
        let (summary, requests, most_in_flight) = run(&CASE, Broker::new(&gate));
        assert!(matches!(summary.end, End::Done));
        assert_eq!(summary.landed, [8, 8]);
        assert_eq!(requests, vec![vec![0, 1]; 8]);
        assert_eq!(most_in_flight, 5);
        assert_eq!(summary.handed_back, []);
    }

    #[test]
    fn one_request_is_in_flight_if_the_producer_may_be_forgotten() {
        let gate = Cell::new(usize::MAX);
        let (summary, requests, most_in_flight) = run(
            &Case {
                is_remembered: false,
                ..CASE
            },
            Broker::new(&gate),
        );
        assert_eq!(
            (summary.landed, requests.len(), most_in_flight),
            (vec![8, 8], 8, 1)
        );
    }

    #[test]
    fn several_batches_go_together_up_to_a_size() {
        let gate = Cell::new(usize::MAX);
        let (summary, requests, _) = run(
            &Case {
                together_bytes: 3 * 62 - 1,
                partitions: 1,
                ..CASE
            },
            Broker::new(&gate),
        );
        assert_eq!((summary.landed, requests.len()), (vec![8], 4));
    }

    /// Answers that are not the expected one, each to the fourth request.
    const LIES: [fn(usize, Vec<u8>) -> Vec<u8>; 6] = [
        |request, answer| changed(request, answer, 25, 1), // the base offset
        |request, answer| changed(request, answer, 18, 74), // an error
        |request, answer| changed(request, answer, 3, 1),  // the correlation id
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

    #[test]
    fn nothing_is_sent_or_counted_after_an_unexpected_answer() {
        for (number, lie) in LIES.into_iter().enumerate() {
            let gate = Cell::new(usize::MAX);
            let (summary, requests, _) = run(
                &CASE,
                Broker {
                    lie,
                    ..Broker::new(&gate)
                },
            );
            assert!(matches!(summary.end, End::Unexpected), "lie {number}");
            assert_eq!(summary.landed, [3, 3], "lie {number}");
            assert_eq!(requests.len(), 3 + summary.handed_back.len());
            let first = &summary.handed_back[0];
            assert_eq!(
                first.parts,
                [0, 1].map(|partition| Part {
                    partition,
                    entries: 3..4
                })
            );
            assert!(
                summary.handed_back.iter().all(|each| each.answer.is_some()),
                "all are received"
            );
        }
    }

    #[test]
    fn nothing_is_sent_after_the_gate_has_closed() {
        for open_for in 0..8 {
            let gate = Cell::new(open_for);
            let (summary, requests, _) = run(&CASE, Broker::new(&gate));
            assert!(matches!(summary.end, End::GateClosed));
            assert_eq!(
                (requests.len(), summary.landed),
                (open_for, vec![open_for; 2])
            );
            assert_eq!(summary.handed_back, []);
        }
    }

    #[test]
    fn requests_without_an_answer_are_handed_back() {
        let gate = Cell::new(usize::MAX);
        let (summary, requests, _) = run(
            &CASE,
            Broker {
                closes_after: 2,
                ..Broker::new(&gate)
            },
        );
        assert!(matches!(summary.end, End::Closed));
        assert_eq!(summary.landed, [2, 2]);
        assert_eq!(requests.len(), 2 + summary.handed_back.len());
        assert!(summary.handed_back.iter().all(|each| each.answer.is_none()));
    }

    #[test]
    fn answer_that_claims_too_many_bytes_is_not_received() {
        let gate = Cell::new(usize::MAX);
        let lie = |_, answer: Vec<u8>| [answer, vec![0; 1000]].concat();
        let (summary, ..) = run(
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
        assert_eq!(summary.handed_back[0].answer, None);
    }
}
