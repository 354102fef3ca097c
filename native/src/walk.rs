//! The stamping walk: plain batches of a fetched record set become batches of ours, where they lie.
//!
//! The reference is `stamp_plain` of `shoal.records.plain`. Plain is a batch of magic 2
//! with a codec and nothing else in its attributes, without holes, that begins at the offset where the one before
//! it ended. All other batches are left to Python, and so is everything behind the first of them. The caller may have
//! decided about two kinds: transactional batches, and those with LogAppendTime.
//!
//! The layout is Kafka's `DefaultRecordBatch`, big-endian.

use crate::checksum::Corrector;

pub const BASE_OFFSET: usize = 0;
pub const LENGTH: usize = 8;
pub const LEADER_EPOCH: usize = 12;
pub const MAGIC: usize = 16;
pub const CRC: usize = 17;
pub const ATTRIBUTES: usize = 21;
pub const LAST_OFFSET_DELTA: usize = 23;
pub const BASE_TIMESTAMP: usize = 27;
pub const MAX_TIMESTAMP: usize = 35;
/// Producer id, producer epoch, base sequence.
pub const IDENTITY: usize = 43;
pub const RECORDS_COUNT: usize = 57;
pub const HEADER_SIZE: usize = 61;

/// What `batch_length` does not count: base offset and length.
pub const LOG_OVERHEAD: usize = 12;
pub const LARGEST_CODEC: i16 = 4;
pub const CODEC_MASK: i16 = 0x07;
pub const LOG_APPEND_TIME: i16 = 0x08;
pub const TRANSACTIONAL: i16 = 0x10;
/// Offsets are of 64 bits, and so is the one after a batch's last: `records.batch` has the same limit, 2^63 - 2^31.
const OFFSET_LIMIT: i64 = i64::MAX - (1 << 31) + 1;
/// Sequences are of 31 bits, and begin again at 0 (`DefaultRecordBatch.incrementSequence`).
const SEQUENCES: i64 = 1 << 31;

/// Whose the batches become, and where the first has to be.
pub struct Stamp {
    pub first_offset: i64,
    /// A batch that begins there or behind is left.
    pub end_offset: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Of the first batch, below 2^31; those of the others follow.
    pub base_sequence: i32,
    /// The bits besides the codec that a plain batch may have in its attributes; the stamp clears them.
    pub cleared: i16,
}

/// A stamped batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub size: u32,
    pub records_count: u32,
    pub max_timestamp_ms: i64,
    /// Its epoch at the source.
    pub leader_epoch: i32,
}

/// Stamp the plain batches at `position`, and return where the first other one begins.
pub fn stamp_plain(
    record_set: &mut [u8],
    mut position: usize,
    stamp: &Stamp,
    entries: &mut Vec<Entry>,
) -> usize {
    let mut corrector = Corrector::default();
    let mut expected = stamp.first_offset;
    let mut sequence = stamp.base_sequence;
    while let Some(entry) = plain_entry(&record_set[position..], expected, stamp) {
        let following = position + entry.size as usize;
        stamp_header(
            &mut record_set[position..following],
            &identity(stamp, sequence),
            &mut corrector,
        );
        expected += i64::from(entry.records_count);
        sequence = next_sequence(sequence, entry.records_count);
        position = following;
        entries.push(entry);
    }
    position
}

/// Read a batch that is whole and plain.
pub fn plain_entry(rest: &[u8], expected: i64, stamp: &Stamp) -> Option<Entry> {
    if rest.len() < HEADER_SIZE {
        return None;
    }
    let base_offset = read_i64(rest, BASE_OFFSET);
    let length = usize::try_from(read_i32(rest, LENGTH)).ok()?;
    let size = length + LOG_OVERHEAD;
    let records_count = read_i32(rest, RECORDS_COUNT);
    let attributes = read_i16(rest, ATTRIBUTES);
    let is_plain = base_offset == expected
        && (0..OFFSET_LIMIT).contains(&base_offset)
        && i64::from(records_count) <= stamp.end_offset - base_offset
        && rest[MAGIC] == 2
        && attributes & !(CODEC_MASK | stamp.cleared) == 0
        && attributes & CODEC_MASK <= LARGEST_CODEC
        && records_count > 0
        && records_count - 1 == read_i32(rest, LAST_OFFSET_DELTA)
        && (HEADER_SIZE..=rest.len()).contains(&size);
    is_plain.then(|| Entry {
        size: size as u32,
        records_count: records_count as u32,
        max_timestamp_ms: newest_create_time_ms(rest, attributes),
        leader_epoch: read_i32(rest, LEADER_EPOCH),
    })
}

/// Return a time that is not after the newest create time: with LogAppendTime the largest one is the append time.
fn newest_create_time_ms(batch: &[u8], attributes: i16) -> i64 {
    let largest_ms = read_i64(batch, MAX_TIMESTAMP);
    match attributes & LOG_APPEND_TIME {
        0 => largest_ms,
        _ => largest_ms.min(read_i64(batch, BASE_TIMESTAMP)),
    }
}

/// Return the sequence behind that of a batch of so many records.
pub fn next_sequence(sequence: i32, records_count: u32) -> i32 {
    ((i64::from(sequence) + i64::from(records_count)) % SEQUENCES) as i32
}

pub fn identity(stamp: &Stamp, sequence: i32) -> [u8; RECORDS_COUNT - IDENTITY] {
    let mut identity = [0; RECORDS_COUNT - IDENTITY];
    identity[..8].copy_from_slice(&stamp.producer_id.to_be_bytes());
    identity[8..10].copy_from_slice(&stamp.producer_epoch.to_be_bytes());
    identity[10..].copy_from_slice(&sequence.to_be_bytes());
    identity
}

fn stamp_header(
    batch: &mut [u8],
    identity: &[u8; RECORDS_COUNT - IDENTITY],
    corrector: &mut Corrector,
) {
    const CHANGING: std::ops::Range<usize> = ATTRIBUTES..RECORDS_COUNT;
    let mut stamped = [0; CHANGING.end - CHANGING.start];
    stamped.copy_from_slice(&batch[CHANGING]);
    stamped[..2].copy_from_slice(&(read_i16(batch, ATTRIBUTES) & CODEC_MASK).to_be_bytes());
    stamped[IDENTITY - ATTRIBUTES..].copy_from_slice(identity);
    let unchanged_after = (batch.len() - RECORDS_COUNT) as u32;
    let difference = corrector.difference(&batch[CHANGING], &stamped, unchanged_after);
    let crc = read_i32(batch, CRC) as u32 ^ difference;
    batch[CHANGING].copy_from_slice(&stamped);
    batch[BASE_OFFSET..LENGTH].fill(0);
    batch[LEADER_EPOCH..MAGIC].fill(0xff);
    batch[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

pub fn read_i16(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn read_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn read_i64(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::checksum::crc32c;

    /// A plain batch of `records_count` records at an offset, with a payload that only its CRC knows.
    pub fn batch(base_offset: i64, records_count: i32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE];
        bytes[BASE_OFFSET..LENGTH].copy_from_slice(&base_offset.to_be_bytes());
        let length = (HEADER_SIZE - LOG_OVERHEAD + payload.len()) as i32;
        bytes[LENGTH..LEADER_EPOCH].copy_from_slice(&length.to_be_bytes());
        bytes[LEADER_EPOCH..MAGIC].copy_from_slice(&7i32.to_be_bytes());
        bytes[MAGIC] = 2;
        bytes[ATTRIBUTES + 1] = 3;
        bytes[LAST_OFFSET_DELTA..LAST_OFFSET_DELTA + 4]
            .copy_from_slice(&(records_count - 1).to_be_bytes());
        bytes[MAX_TIMESTAMP..IDENTITY].copy_from_slice(&1_700_000_000_000i64.to_be_bytes());
        bytes[IDENTITY..IDENTITY + 8].copy_from_slice(&42i64.to_be_bytes());
        bytes[RECORDS_COUNT..].copy_from_slice(&records_count.to_be_bytes());
        bytes.extend_from_slice(payload);
        let crc = crc32c(&bytes[ATTRIBUTES..]);
        bytes[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    const OURS: Stamp = Stamp {
        first_offset: 100,
        end_offset: i64::MAX,
        producer_id: 9,
        producer_epoch: 1,
        base_sequence: 5,
        cleared: 0,
    };

    fn walked(record_set: &mut [u8], stamp: &Stamp) -> (usize, Vec<Entry>) {
        let mut entries = Vec::new();
        let end = stamp_plain(record_set, 0, stamp, &mut entries);
        (end, entries)
    }

    #[test]
    fn plain_batches_are_stamped_and_their_checksums_still_match() {
        let mut set = [batch(100, 3, b"abc"), batch(103, 1, &[9; 1000])].concat();
        let (end, entries) = walked(&mut set, &OURS);
        assert_eq!(end, set.len());
        assert_eq!(
            entries
                .iter()
                .map(|each| each.records_count)
                .collect::<Vec<_>>(),
            [3, 1]
        );
        let mut at = 0;
        for (entry, sequence) in entries.iter().zip([5, 8]) {
            let batch = &set[at..at + entry.size as usize];
            assert_eq!(read_i32(batch, CRC) as u32, crc32c(&batch[ATTRIBUTES..]));
            assert_eq!(read_i64(batch, BASE_OFFSET), 0);
            assert_eq!(read_i32(batch, LEADER_EPOCH), -1);
            assert_eq!(read_i64(batch, IDENTITY), 9);
            assert_eq!(read_i16(batch, IDENTITY + 8), 1);
            assert_eq!(read_i32(batch, IDENTITY + 10), sequence);
            at += entry.size as usize;
        }
    }

    #[test]
    fn batches_of_transactions_and_append_times_are_stamped_if_the_caller_has_decided_so() {
        let mut flagged = batch(100, 3, b"abc");
        flagged[ATTRIBUTES + 1] = 0x1a; // with codec 2
        flagged[BASE_TIMESTAMP..MAX_TIMESTAMP].copy_from_slice(&70i64.to_be_bytes());
        flagged[MAX_TIMESTAMP..IDENTITY].copy_from_slice(&90i64.to_be_bytes());
        let crc = crc32c(&flagged[ATTRIBUTES..]);
        flagged[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
        for cleared in [0, TRANSACTIONAL, LOG_APPEND_TIME] {
            let stamp = Stamp { cleared, ..OURS };
            assert_eq!(walked(&mut flagged.clone(), &stamp), (0, vec![]));
        }
        let cleared = TRANSACTIONAL | LOG_APPEND_TIME;
        let (end, entries) = walked(&mut flagged, &Stamp { cleared, ..OURS });
        assert_eq!((end, entries[0].max_timestamp_ms), (flagged.len(), 70));
        assert_eq!(read_i16(&flagged, ATTRIBUTES), 2);
        assert_eq!(read_i64(&flagged, MAX_TIMESTAMP), 90);
        assert_eq!(
            read_i32(&flagged, CRC) as u32,
            crc32c(&flagged[ATTRIBUTES..])
        );
    }

    #[test]
    fn damaged_payload_keeps_a_checksum_that_does_not_match() {
        let mut set = batch(100, 3, b"abc");
        *set.last_mut().expect("a payload") ^= 1;
        walked(&mut set, &OURS);
        assert_ne!(read_i32(&set, CRC) as u32, crc32c(&set[ATTRIBUTES..]));
    }

    #[test]
    fn walk_ends_before_the_first_batch_that_is_not_plain() {
        let plain = batch(100, 3, b"abc");
        let mut others: Vec<Vec<u8>> = vec![
            batch(104, 1, b"a hole before it"),
            batch(103, 0, b"no records"),
        ];
        for (at, byte) in [
            (MAGIC, 1),
            (ATTRIBUTES + 1, 5),
            (ATTRIBUTES + 1, 0x13),
            (ATTRIBUTES, 0x80),
            (LENGTH, 0xff),
        ] {
            let mut other = batch(103, 2, b"xyz");
            other[at] = byte;
            others.push(other);
        }
        let mut holed = batch(103, 2, b"xyz");
        holed[RECORDS_COUNT + 3] = 1;
        others.push(holed);
        let whole = batch(103, 2, b"xyz");
        others.push(whole[..whole.len() - 1].to_vec());
        others.push(whole[..HEADER_SIZE - 1].to_vec());
        for other in others {
            let mut set = [plain.clone(), other.clone()].concat();
            let (end, entries) = walked(&mut set, &OURS);
            assert_eq!((end, entries.len()), (plain.len(), 1));
            assert_eq!(set[end..], other[..], "what is left is as it was");
        }
    }

    #[test]
    fn walk_ends_at_the_end_offset_and_sequences_begin_again_at_zero() {
        let mut set = [batch(100, 3, b"abc"), batch(103, 1, b"d")].concat();
        let stamp = Stamp {
            end_offset: 103,
            base_sequence: i32::MAX - 1,
            ..OURS
        };
        assert_eq!(walked(&mut set.clone(), &stamp).1.len(), 1);
        let stamp = Stamp {
            end_offset: 104,
            ..stamp
        };
        let (_, entries) = walked(&mut set, &stamp);
        assert_eq!(read_i32(&set[entries[0].size as usize..], IDENTITY + 10), 1);
    }
}
