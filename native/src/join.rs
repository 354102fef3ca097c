//! Joins small batches: the records of uncompressed ones, one behind the other, as the records of one batch.
//!
//! The reference is `read_records` and `write_batches` of `shoal.records`: the bodies of records are copied, and only
//! the fields before them are new. A batch that is no plain one, whose checksum is wrong or whose records do not fit
//! its header, is left to Python, and so is everything behind it.

use crate::checksum::crc32c;
use crate::varint::{Reader, varint_size, write_varint};
use crate::walk::{
    ATTRIBUTES, BASE_TIMESTAMP, CRC, Entry, HEADER_SIZE, Stamp, plain_entry, read_i32, read_i64,
};

/// A body without key, value and headers.
const SMALLEST_BODY: usize = 3;

/// What may be joined.
pub struct Limits {
    /// A batch of this size is not joined, and batches of this size together are enough.
    pub below_bytes: usize,
    /// The most bytes of bodies.
    pub most_bytes: usize,
}

/// Batches that became the records of one.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined {
    /// The position behind the last of them.
    pub end: usize,
    pub batches: usize,
    pub records_count: u32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub leader_epoch: i32,
    /// The records of the batch that they become, uncompressed.
    pub payload: Vec<u8>,
}

/// Join the batches at `position` that follow one another; `plain` has the offset of the first.
pub fn join_plain(record_set: &[u8], position: usize, plain: &Stamp, limits: &Limits) -> Joined {
    let mut joined = Joined {
        end: position,
        batches: 0,
        records_count: 0,
        base_timestamp: 0,
        max_timestamp: i64::MIN,
        leader_epoch: 0,
        payload: Vec::new(),
    };
    let mut bodies = 0;
    while joined.end - position < limits.below_bytes {
        let rest = &record_set[joined.end..];
        let expected = plain.first_offset + i64::from(joined.records_count);
        let Some(entry) = plain_entry(rest, expected, plain) else {
            break;
        };
        let batch = &rest[..entry.size as usize];
        let fits = batch.len() < limits.below_bytes
            && (joined.batches == 0 || entry.leader_epoch == joined.leader_epoch)
            && batch[ATTRIBUTES + 1] & 0x07 == 0
            && joined
                .records_count
                .checked_add(entry.records_count)
                .is_some_and(|count| count < 1 << 31)
            && read_i32(batch, CRC) as u32 == crc32c(&batch[ATTRIBUTES..]);
        if !fits || !append(batch, &entry, limits, &mut bodies, &mut joined) {
            break;
        }
    }
    joined
}

/// Append the records of a batch, or leave all as it was and return false.
fn append(
    batch: &[u8],
    entry: &Entry,
    limits: &Limits,
    bodies: &mut usize,
    joined: &mut Joined,
) -> bool {
    let before = (
        joined.payload.len(),
        joined.base_timestamp,
        joined.max_timestamp,
    );
    let base_timestamp = read_i64(batch, BASE_TIMESTAMP);
    let mut reader = Reader {
        rest: &batch[HEADER_SIZE..],
    };
    let mut added = 0;
    for number in 0..entry.records_count {
        let Some((delta, body)) = read_record(&mut reader, number) else {
            break;
        };
        let timestamp = base_timestamp.wrapping_add(delta);
        if joined.records_count == 0 && number == 0 {
            joined.base_timestamp = timestamp;
        }
        let Some(delta) = timestamp.checked_sub(joined.base_timestamp) else {
            break;
        };
        joined.max_timestamp = joined.max_timestamp.max(timestamp);
        write_record(
            delta,
            joined.records_count + number,
            body,
            &mut joined.payload,
        );
        added += body.len();
        if number + 1 == entry.records_count
            && reader.rest.is_empty()
            && *bodies + added <= limits.most_bytes
        {
            *bodies += added;
            joined.end += batch.len();
            joined.batches += 1;
            joined.records_count += entry.records_count;
            joined.leader_epoch = entry.leader_epoch;
            return true;
        }
    }
    joined.payload.truncate(before.0);
    (joined.base_timestamp, joined.max_timestamp) = (before.1, before.2);
    false
}

fn write_record(timestamp_delta: i64, offset_delta: u32, body: &[u8], to: &mut Vec<u8>) {
    let timestamp_delta = (timestamp_delta << 1 ^ timestamp_delta >> 63) as u64;
    let offset_delta = u64::from(offset_delta) << 1;
    let size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + body.len();
    write_varint((size as u64) << 1, to);
    to.push(0); // the attributes, of which Kafka uses none
    write_varint(timestamp_delta, to);
    write_varint(offset_delta, to);
    to.extend_from_slice(body);
}

/// Read a record without a gap before it: its timestamp delta, and its body.
fn read_record<'a>(reader: &mut Reader<'a>, number: u32) -> Option<(i64, &'a [u8])> {
    let size = reader.varint(32)?;
    if size & 1 == 1 {
        return None;
    }
    let mut fields = Reader {
        rest: reader.bytes((size >> 1) as usize)?,
    };
    fields.bytes(1)?; // the attributes
    let timestamp_delta = fields.varint(64)?;
    let offset_delta = fields.varint(32)?;
    let is_next = offset_delta == u64::from(number) << 1;
    let zigzag = (timestamp_delta >> 1) as i64 ^ -((timestamp_delta & 1) as i64);
    (is_next && fields.rest.len() >= SMALLEST_BODY).then_some((zigzag, fields.rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::RECORDS_COUNT;
    use crate::walk::tests::batch;

    const LIMITS: Limits = Limits {
        below_bytes: 1000,
        most_bytes: 1 << 20,
    };

    fn from(first_offset: i64) -> Stamp {
        Stamp {
            first_offset,
            end_offset: i64::MAX,
            producer_id: 0,
            producer_epoch: 0,
            base_sequence: 0,
            cleared: 0,
        }
    }

    /// An uncompressed batch of records with these timestamps and bodies.
    fn of_records(base_offset: i64, records: &[(i64, &[u8])]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (number, (delta, body)) in records.iter().enumerate() {
            write_record(*delta, number as u32, body, &mut payload);
        }
        let mut bytes = batch(base_offset, records.len() as i32, &payload);
        bytes[ATTRIBUTES + 1] = 0;
        checked(bytes)
    }

    fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32c(&bytes[ATTRIBUTES..]);
        bytes[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn records_of_batches_follow_one_another_with_deltas_of_the_first() {
        let set = [
            of_records(100, &[(5, b"abc"), (7, b"defg")]),
            of_records(102, &[(3, b"hij")]),
        ]
        .concat();
        let joined = join_plain(&set, 0, &from(100), &LIMITS);
        let mut expected = Vec::new();
        for (number, (delta, body)) in [(0, &b"abc"[..]), (2, b"defg"), (-2, b"hij")]
            .iter()
            .enumerate()
        {
            write_record(*delta, number as u32, body, &mut expected);
        }
        assert_eq!(
            (joined.end, joined.batches, joined.records_count),
            (set.len(), 2, 3)
        );
        assert_eq!((joined.base_timestamp, joined.max_timestamp), (5, 7));
        assert_eq!((joined.leader_epoch, joined.payload), (7, expected));
    }

    #[test]
    fn batch_that_cannot_be_joined_ends_the_joined_ones_and_leaves_no_trace() {
        let first = of_records(100, &[(1, b"abc")]);
        let alone = join_plain(&first, 0, &from(100), &LIMITS);
        let good = of_records(101, &[(900, b"abc"), (901, b"abc")]);
        let changed = |at: usize, by: u8| {
            let mut bytes = good.clone();
            bytes[at] = bytes[at].wrapping_add(by);
            bytes
        };
        let others = [
            changed(CRC, 1),
            checked(changed(ATTRIBUTES + 1, 2)),
            checked(changed(15, 1)),                // its leader epoch
            checked(changed(HEADER_SIZE, 1)),       // a negative length
            checked(changed(HEADER_SIZE, 2)),       // the first record ends inside of the second
            checked(changed(HEADER_SIZE + 4, 2)),   // its offset delta
            checked([&good[..], &[0]].concat()),    // the header does not count the last byte
            checked(changed(RECORDS_COUNT + 3, 1)), // more records than there are
            of_records(102, &[(0, b"abc")]),        // a gap before it
            of_records(101, &[(0, &[1; 1000])]),    // as large as is enough
            of_records(101, &[(i64::MIN, b"abc")]),
        ];
        for (number, other) in others.into_iter().enumerate() {
            let set = [first.clone(), other].concat();
            assert_eq!(join_plain(&set, 0, &from(100), &LIMITS), alone, "{number}");
        }
    }

    #[test]
    fn joining_ends_when_the_batches_are_enough_or_their_bodies_are_too_many() {
        let one = |number: i64| of_records(100 + number, &[(0, &[1; 100])]);
        let set: Vec<u8> = (0..10).flat_map(one).collect();
        let of = |below_bytes, most_bytes| {
            let limits = Limits {
                below_bytes,
                most_bytes,
            };
            join_plain(&set, 0, &from(100), &limits).batches
        };
        let size = one(0).len();
        assert_eq!(of(3 * size, 1 << 20), 3);
        assert_eq!(of(3 * size + 1, 1 << 20), 4);
        assert_eq!(of(1 << 20, 1 << 20), 10);
        assert_eq!(of(1 << 20, 299), 2);
        assert_eq!(of(size, 1 << 20), 0);
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
