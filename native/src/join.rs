//! Joins small batches of one codec: their records, one behind the other, as the records of larger uncompressed ones.
//!
//! The reference is `read_records`, `write_batches` and `stamp` of `shoal.records`: the bodies of records are copied,
//! and only the fields before them are new. A batch that is no plain one, whose checksum is wrong or whose records do
//! not fit its header, is left to Python, and so is everything behind it. So are batches at the end that are not
//! enough for a joined one: it may be joined with others behind a marker or a gap.
//!
//! A group of batches is measured, and then written at once, while the processor's cache still has it. What is
//! decompressed for it is kept until then.

use crate::checksum::crc32c;
use crate::varint::{Reader, varint, varint_size};
use crate::walk::{
    ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, CODEC_MASK, CRC, Entry, HEADER_SIZE, IDENTITY,
    LAST_OFFSET_DELTA, LEADER_EPOCH, LENGTH, LOG_OVERHEAD, MAGIC, MAX_TIMESTAMP, RECORDS_COUNT,
    Stamp, identity, next_sequence, plain_entry, read_i16, read_i32, read_i64,
};

/// A body without key, value and headers.
const SMALLEST_BODY: usize = 3;

/// The batches that were joined.
pub struct Joined {
    /// The position behind the last of them.
    pub end: usize,
    /// The joined ones.
    pub entries: Vec<Entry>,
}

/// Batches that follow one another, and become one.
#[derive(Clone, Copy, Default)]
struct Group {
    /// The position behind the last of them.
    end: usize,
    batches: usize,
    records_count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
    leader_epoch: i32,
    codec: i16,
    /// The size of the records of the batch that they become.
    payload_bytes: usize,
}

impl Group {
    /// The joined batch.
    fn entry(&self) -> Entry {
        Entry {
            size: self.written_bytes() as u32,
            records_count: self.records_count,
            max_timestamp_ms: self.max_timestamp,
            leader_epoch: self.leader_epoch,
        }
    }

    fn written_bytes(&self) -> usize {
        if self.batches == 0 {
            return 0;
        }
        HEADER_SIZE + self.payload_bytes
    }

    /// Whether a batch is to be joined with the others, if its records fit its header.
    fn takes(&self, batch: &[u8], entry: &Entry, below_bytes: usize) -> bool {
        let kind = (entry.leader_epoch, codec_of(batch));
        (self.batches == 0 || kind == (self.leader_epoch, self.codec))
            && batch.len() < below_bytes
            && read_i32(batch, CRC) as u32 == crc32c(&batch[ATTRIBUTES..])
    }

    /// Return the group with one more batch, or None if its records do not fit its header.
    fn with(mut self, batch: &[u8], records: &[u8], entry: &Entry) -> Option<Self> {
        let mut records = Records::of(batch, records);
        for number in 0..entry.records_count {
            let (timestamp, body) = records.next(number)?;
            if self.records_count == 0 {
                (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
            }
            let delta = timestamp.checked_sub(self.base_timestamp)?;
            self.max_timestamp = self.max_timestamp.max(timestamp);
            let size = size_of_record(delta, self.records_count, body);
            self.payload_bytes += varint_size((size as u64) << 1) + size;
            self.records_count += 1;
        }
        self.end += batch.len();
        self.batches += 1;
        (self.leader_epoch, self.codec) = (entry.leader_epoch, codec_of(batch));
        records.reader.rest.is_empty().then_some(self)
    }

    /// Write the joined batch; `batches` are those of the group, `opened` their records if they have a codec, and `to`
    /// has its size.
    fn write(
        &self,
        mut batches: &[u8],
        opened: &[Vec<u8>],
        stamp: &Stamp,
        sequence: i32,
        to: &mut [u8],
    ) {
        let mut payload = &mut to[HEADER_SIZE..];
        let mut number = 0;
        let mut opened = opened.iter();
        while !batches.is_empty() {
            let size = read_i32(batches, LENGTH) as usize + LOG_OVERHEAD;
            let (batch, rest) = batches.split_at(size);
            let records = opened.next().map_or(&batch[HEADER_SIZE..], Vec::as_slice);
            let mut records = Records::of(batch, records);
            for own in 0..read_i32(batch, RECORDS_COUNT) as u32 {
                let (timestamp, body) = records.next(own).expect("it was measured");
                write_record(timestamp - self.base_timestamp, number, body, &mut payload);
                number += 1;
            }
            batches = rest;
        }
        assert!(payload.is_empty(), "a joined batch has the measured size");
        let length = (to.len() - LOG_OVERHEAD) as i32;
        to[BASE_OFFSET..LENGTH].fill(0);
        to[LENGTH..LEADER_EPOCH].copy_from_slice(&length.to_be_bytes());
        to[LEADER_EPOCH..MAGIC].fill(0xff);
        to[MAGIC] = 2;
        to[ATTRIBUTES..LAST_OFFSET_DELTA].fill(0);
        to[LAST_OFFSET_DELTA..BASE_TIMESTAMP]
            .copy_from_slice(&(self.records_count - 1).to_be_bytes());
        to[BASE_TIMESTAMP..MAX_TIMESTAMP].copy_from_slice(&self.base_timestamp.to_be_bytes());
        to[MAX_TIMESTAMP..IDENTITY].copy_from_slice(&self.max_timestamp.to_be_bytes());
        to[IDENTITY..RECORDS_COUNT].copy_from_slice(&identity(stamp, sequence));
        to[RECORDS_COUNT..HEADER_SIZE].copy_from_slice(&self.records_count.to_be_bytes());
        let crc = crc32c(&to[ATTRIBUTES..]);
        to[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Join the batches at `position`, stamped, one behind the other at the beginning of `to`.
///
/// `stamp` has the offset of the first. A batch of `below_bytes` is not joined, and batches of this size together are
/// enough. `decompress` gets a codec, records, and the most bytes that may come out. It returns None for a batch to be
/// left. No more is written, nor decompressed at a time, than `to` has room for.
pub fn join(
    record_set: &[u8],
    position: usize,
    stamp: &Stamp,
    below_bytes: usize,
    mut to: &mut [u8],
    decompress: impl FnMut(i16, &[u8], usize) -> Option<Vec<u8>>,
) -> Joined {
    let mut search = Search {
        record_set,
        stamp,
        below_bytes,
        decompress,
        opened: Vec::new(),
    };
    let mut joined = Joined {
        end: position,
        entries: Vec::new(),
    };
    let mut codec = None;
    let mut expected = stamp.first_offset;
    let mut sequence = stamp.base_sequence;
    loop {
        let start = joined.end;
        let group = search.group_at(start, expected, to.len());
        let is_enough = group.end - start >= below_bytes;
        if group.batches < 2
            || !is_enough && has_whole_batch(&record_set[group.end..])
            || *codec.get_or_insert(group.codec) != group.codec
        {
            return joined;
        }
        let (place, rest) = to.split_at_mut(group.written_bytes());
        let batches = &record_set[start..group.end];
        group.write(batches, &search.opened, stamp, sequence, place);
        joined.entries.push(group.entry());
        joined.end = group.end;
        expected += i64::from(group.records_count);
        sequence = next_sequence(sequence, group.records_count);
        to = rest;
    }
}

struct Search<'a, F> {
    record_set: &'a [u8],
    stamp: &'a Stamp,
    below_bytes: usize,
    decompress: F,
    /// The records of each batch of the group, if they have a codec.
    opened: Vec<Vec<u8>>,
}

impl<F: FnMut(i16, &[u8], usize) -> Option<Vec<u8>>> Search<'_, F> {
    fn group_at(&mut self, start: usize, expected: i64, mut room: usize) -> Group {
        self.opened.clear();
        let mut group = Group {
            end: start,
            ..Group::default()
        };
        while group.end - start < self.below_bytes {
            let next = expected + i64::from(group.records_count);
            let Some(larger) = self.larger(&group, next, &mut room) else {
                break;
            };
            group = larger;
        }
        group
    }

    /// Return the group with the batch behind it, whose offset is `next`, if that can be joined with it.
    fn larger(&mut self, group: &Group, next: i64, room: &mut usize) -> Option<Group> {
        let rest = &self.record_set[group.end..];
        let entry = plain_entry(rest, next, self.stamp)?;
        let batch = &rest[..entry.size as usize];
        if !group.takes(batch, &entry, self.below_bytes) {
            return None;
        }
        let records = &batch[HEADER_SIZE..];
        let opened = match codec_of(batch) {
            0 => None,
            codec => Some((self.decompress)(codec, records, *room)?),
        };
        let larger = group.with(batch, opened.as_deref().unwrap_or(records), &entry)?;
        // A record may take three times as many bytes as before, if its time is far from that of the first.
        let written = larger.written_bytes() - group.written_bytes();
        let taken = written.max(opened.as_ref().map_or(0, Vec::len));
        *room = room.checked_sub(taken)?;
        self.opened.extend(opened);
        Some(larger)
    }
}

fn codec_of(batch: &[u8]) -> i16 {
    read_i16(batch, ATTRIBUTES) & CODEC_MASK
}

fn has_whole_batch(rest: &[u8]) -> bool {
    rest.len() >= LOG_OVERHEAD
        && usize::try_from(read_i32(rest, LENGTH))
            .is_ok_and(|length| length + LOG_OVERHEAD <= rest.len())
}

/// The size of a record behind its length.
fn size_of_record(timestamp_delta: i64, offset_delta: u32, body: &[u8]) -> usize {
    let offset_delta = u64::from(offset_delta) << 1;
    1 + varint_size(zigzag(timestamp_delta)) + varint_size(offset_delta) + body.len()
}

fn write_record(timestamp_delta: i64, offset_delta: u32, body: &[u8], to: &mut &mut [u8]) {
    let size = size_of_record(timestamp_delta, offset_delta, body);
    put_varint((size as u64) << 1, to);
    put(&[0], to); // the attributes, of which Kafka uses none
    put_varint(zigzag(timestamp_delta), to);
    put_varint(u64::from(offset_delta) << 1, to);
    put(body, to);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn put_varint(value: u64, to: &mut &mut [u8]) {
    let (bytes, size) = varint(value);
    put(&bytes[..size], to);
}

/// Write bytes at the beginning of a slice, and leave the rest of it.
fn put(bytes: &[u8], to: &mut &mut [u8]) {
    let (place, rest) = std::mem::take(to).split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
    *to = rest;
}

/// The records of a batch, one after the other.
struct Records<'a> {
    base_timestamp: i64,
    reader: Reader<'a>,
}

impl<'a> Records<'a> {
    fn of(batch: &[u8], records: &'a [u8]) -> Self {
        Records {
            base_timestamp: read_i64(batch, BASE_TIMESTAMP),
            reader: Reader { rest: records },
        }
    }

    /// Read the record of this number, without a gap before it: its timestamp and its body.
    fn next(&mut self, number: u32) -> Option<(i64, &'a [u8])> {
        let size = self.reader.varint(32)?;
        if size & 1 == 1 {
            return None;
        }
        let mut fields = Reader {
            rest: self.reader.bytes((size >> 1) as usize)?,
        };
        fields.bytes(1)?; // the attributes
        let timestamp_delta = fields.varint(64)?;
        let offset_delta = fields.varint(32)?;
        let is_next = offset_delta == u64::from(number) << 1;
        let delta = (timestamp_delta >> 1) as i64 ^ -((timestamp_delta & 1) as i64);
        (is_next && fields.rest.len() >= SMALLEST_BODY)
            .then_some((self.base_timestamp.wrapping_add(delta), fields.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::write_varint;
    use crate::walk::tests::batch;

    const BELOW_BYTES: usize = 1000;

    fn from(first_offset: i64) -> Stamp {
        Stamp {
            first_offset,
            end_offset: i64::MAX,
            producer_id: 9,
            producer_epoch: 1,
            base_sequence: i32::MAX,
            cleared: 0,
        }
    }

    /// An uncompressed batch of records with these timestamps and bodies.
    fn of_records(base_offset: i64, records: &[(i64, &[u8])]) -> Vec<u8> {
        let mut payload = vec![0; 1100 * records.len()];
        let mut rest = &mut payload[..];
        for (number, (delta, body)) in records.iter().enumerate() {
            write_record(*delta, number as u32, body, &mut rest);
        }
        let left = rest.len();
        payload.truncate(payload.len() - left);
        let mut bytes = batch(base_offset, records.len() as i32, &payload);
        bytes[ATTRIBUTES + 1] = 0;
        checked(bytes)
    }

    /// A codec whose bytes are inverted; of another codec all batches are damaged.
    fn decompress(codec: i16, records: &[u8], room: usize) -> Option<Vec<u8>> {
        let is_good = codec == 3 && records.len() <= room;
        is_good.then(|| records.iter().map(|byte| !byte).collect())
    }

    /// The same batch with a codec.
    fn with_codec(mut bytes: Vec<u8>, codec: u8) -> Vec<u8> {
        bytes[ATTRIBUTES + 1] = codec;
        bytes[HEADER_SIZE..]
            .iter_mut()
            .for_each(|byte| *byte = !*byte);
        checked(bytes)
    }

    fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32c(&bytes[ATTRIBUTES..]);
        bytes[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Return the position behind the joined batches, the entry of each new one, and their bytes.
    fn joined(set: &[u8], below_bytes: usize, most_bytes: usize) -> (usize, Vec<Entry>, Vec<u8>) {
        let mut to = vec![0xaa; most_bytes];
        let Joined { end, entries } =
            join(set, 0, &from(100), below_bytes, &mut to, decompress);
        to.truncate(entries.iter().map(|each| each.size as usize).sum());
        (end, entries, to)
    }

    fn joined_below(set: &[u8], below_bytes: usize) -> (usize, Vec<Entry>, Vec<u8>) {
        joined(set, below_bytes, 1 << 20)
    }

    #[test]
    fn records_of_batches_follow_one_another_with_deltas_of_the_first() {
        let set = [
            of_records(100, &[(5, b"abc"), (7, b"defg")]),
            of_records(102, &[(3, b"hij")]),
        ]
        .concat();
        let (end, entries, bytes) = joined_below(&set, BELOW_BYTES);
        let mut expected = of_records(0, &[(0, b"abc"), (2, b"defg"), (-2, b"hij")]);
        expected[LEADER_EPOCH..MAGIC].fill(0xff);
        expected[BASE_TIMESTAMP..MAX_TIMESTAMP].copy_from_slice(&5i64.to_be_bytes());
        expected[MAX_TIMESTAMP..IDENTITY].copy_from_slice(&7i64.to_be_bytes());
        expected[IDENTITY..RECORDS_COUNT].copy_from_slice(&identity(&from(100), i32::MAX));
        let entry = Entry {
            size: bytes.len() as u32,
            records_count: 3,
            max_timestamp_ms: 7,
            leader_epoch: 7,
        };
        assert_eq!((end, entries), (set.len(), vec![entry]));
        assert_eq!(bytes, checked(expected));
    }

    #[test]
    fn batch_that_cannot_be_joined_ends_the_joined_ones() {
        let two = [
            of_records(100, &[(1, &[1; 500])]),
            of_records(101, &[(1, &[2; 500])]),
        ]
        .concat();
        let alone = joined_below(&two, BELOW_BYTES);
        assert_eq!(alone.0, two.len());
        let good = of_records(102, &[(900, b"abc"), (901, b"abc")]);
        let changed = |at: usize, by: u8| {
            let mut bytes = good.clone();
            bytes[at] = bytes[at].wrapping_add(by);
            bytes
        };
        let others = [
            changed(CRC, 1),
            checked(changed(ATTRIBUTES + 1, 2)),
            checked(changed(HEADER_SIZE, 1)), // a negative length
            checked(changed(HEADER_SIZE, 2)), // the first record ends inside of the second
            checked(changed(HEADER_SIZE + 4, 2)), // its offset delta
            checked([&good[..], &[0]].concat()), // the header does not count the last byte
            checked(changed(RECORDS_COUNT + 3, 1)), // more records than there are
            of_records(103, &[(0, b"abc")]),  // a gap before it
            of_records(102, &[(0, &[1; 1000])]), // as large as is enough
        ];
        for (number, other) in others.into_iter().enumerate() {
            let set = [two.clone(), other.clone(), other].concat();
            assert_eq!(joined_below(&set, BELOW_BYTES), alone, "{number}");
        }
    }

    #[test]
    fn batches_are_joined_with_none_of_another_epoch_or_of_times_too_far_away() {
        let first = of_records(100, &[(1, b"abc")]);
        let mut of_another_epoch = of_records(101, &[(1, b"abc")]);
        of_another_epoch[15] += 1;
        for other in [of_another_epoch, of_records(101, &[(i64::MIN, b"abc")])] {
            let set = [first.clone(), other].concat();
            assert_eq!(joined_below(&set, BELOW_BYTES), (0, vec![], vec![]));
        }
    }

    #[test]
    fn batches_that_are_not_enough_are_joined_at_the_end_alone() {
        let one = |number: i64| of_records(100 + number, &[(0, &[1; 100])]);
        let set: Vec<u8> = (0..10).flat_map(one).collect();
        let size = one(0).len();
        let counts = |set: &[u8], below_bytes, most_bytes| -> Vec<u32> {
            let (_, entries, _) = joined(set, below_bytes, most_bytes);
            entries.iter().map(|each| each.records_count).collect()
        };
        assert_eq!(counts(&set, 3 * size, 1 << 20), [3, 3, 3]);
        assert_eq!(counts(&set, 3 * size + 1, 1 << 20), [4, 4, 2]);
        assert_eq!(counts(&set, 1 << 20, 1 << 20), [10]);
        assert_eq!(counts(&set, 1 << 20, 299), [] as [u32; 0]);
        assert_eq!(counts(&set[..set.len() - 1], 1 << 20, 1 << 20), [9]);
        assert_eq!(counts(&set, size, 1 << 20), [] as [u32; 0]);
    }

    #[test]
    fn batches_with_a_codec_become_the_same_as_those_without() {
        let plain: Vec<Vec<u8>> = (0..7)
            .map(|number| of_records(100 + number, &[(number, &[1; 100])]))
            .collect();
        let size = plain[0].len();
        let of_codec = |codec| -> Vec<u8> {
            plain
                .iter()
                .flat_map(|each| with_codec(each.clone(), codec))
                .collect()
        };
        let expected = joined_below(&plain.concat(), 3 * size);
        assert_eq!(expected.1.len(), 2);
        assert_eq!(joined_below(&of_codec(3), 3 * size), expected);
        assert_eq!(joined_below(&of_codec(4), 3 * size), (0, vec![], vec![]));
        // As much is decompressed at a time as may be written.
        let few = joined(&of_codec(3), 3 * size, 5 * (size - HEADER_SIZE));
        assert_eq!(few.1, expected.1[..1]);
    }

    #[test]
    fn batches_of_two_codecs_are_not_joined() {
        let plain: Vec<Vec<u8>> = (0..4)
            .map(|number| of_records(100 + number, &[(0, b"abc")]))
            .collect();
        let two = plain[..2].concat();
        let others = plain[2..].iter().map(|each| with_codec(each.clone(), 3));
        let set: Vec<u8> = two.iter().copied().chain(others.flatten()).collect();
        assert_eq!(joined_below(&set, BELOW_BYTES), (0, vec![], vec![]));
        let enough = two.len();
        assert_eq!(joined_below(&set, enough), joined_below(&two, enough));
    }

    #[test]
    fn sequences_begin_again_behind_the_largest() {
        let set: Vec<u8> = (0..4)
            .flat_map(|number| of_records(100 + number, &[(0, &[1; 100])]))
            .collect();
        let (_, entries, bytes) = joined_below(&set, set.len() / 2);
        let second = &bytes[entries[0].size as usize..];
        assert_eq!(read_i32(&bytes, RECORDS_COUNT - 4), i32::MAX);
        assert_eq!(read_i32(second, RECORDS_COUNT - 4), 1);
    }

    #[test]
    fn varints_of_all_sizes_are_read_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                write_varint(value, &mut bytes);
                assert_eq!(bytes.len(), varint_size(value));
                assert_eq!(Reader { rest: &bytes }.varint(64), Some(value));
                let fits = value <= u64::from(u32::MAX);
                assert_eq!(Reader { rest: &bytes }.varint(32), fits.then_some(value));
            }
        }
        assert_eq!(Reader { rest: &[0x80; 10] }.varint(64), None);
    }
}
