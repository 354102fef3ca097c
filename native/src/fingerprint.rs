//! Fingerprints of plain batches, many at a time: all of a batch that neither a mirror nor a broker changes.
//!
//! The reference is `fingerprint_plain` of `shoal.records.fingerprint`, which has the reasons for what is left out.
//! What is plain here is wider than in the stamping walk: a comparison may have transactional batches, and those of
//! a topic with LogAppendTime.

use crate::checksum::{Corrector, crc32c, crc32c_of_two};
use crate::walk::{
    ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, CODEC_MASK, CRC, HEADER_SIZE, IDENTITY, LARGEST_CODEC,
    LAST_OFFSET_DELTA, LENGTH, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC, MAX_TIMESTAMP, RECORDS_COUNT,
    TRANSACTIONAL, read_i16, read_i32, read_i64,
};

const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// Up to this size a payload that is in the cache is read again sooner than a CRC is corrected: 1 µs each.
const LARGEST_READ_AGAIN: usize = 16_384;

/// Return a row for each plain batch from `position` on, as `PACKED_FINGERPRINT`: CRC, size, records, codec and base
/// timestamp, little-endian. Each batch has the CRC that its header says.
pub fn fingerprint_plain(
    record_set: &[u8],
    mut position: usize,
    first_offset: i64,
    end_offset: i64,
    transactional: bool,
) -> Vec<u8> {
    let mut offset = first_offset;
    let mut time_type = None;
    let mut rows = Vec::new();
    let mut corrector = Corrector::default();
    let transactional_too = if transactional { 0 } else { TRANSACTIONAL };
    let refused = CONTROL | DELETE_HORIZON | transactional_too;
    while offset < end_offset {
        let Some(batch) = whole_batch(&record_set[position..]) else {
            break;
        };
        let attributes = read_i16(batch, ATTRIBUTES);
        let codec = attributes & CODEC_MASK;
        let records = read_i32(batch, RECORDS_COUNT);
        let of_batch = attributes & LOG_APPEND_TIME;
        if read_i64(batch, BASE_OFFSET) != offset
            || batch[MAGIC] != 2
            || attributes & refused != 0
            || codec > LARGEST_CODEC
            || records <= 0
            || records - 1 != read_i32(batch, LAST_OFFSET_DELTA)
            || *time_type.get_or_insert(of_batch) != of_batch
            || crc32c(&batch[ATTRIBUTES..]) != read_i32(batch, CRC) as u32
        {
            break;
        }
        rows.extend_from_slice(&normalised_crc(batch, codec, &mut corrector).to_le_bytes());
        rows.extend_from_slice(&(batch.len() as u32).to_le_bytes());
        rows.extend_from_slice(&records.to_le_bytes());
        rows.extend_from_slice(&i32::from(codec).to_le_bytes());
        rows.extend_from_slice(&read_i64(batch, BASE_TIMESTAMP).to_le_bytes());
        position += batch.len();
        offset = offset.saturating_add(records.into());
    }
    rows
}

fn whole_batch(rest: &[u8]) -> Option<&[u8]> {
    if rest.len() < HEADER_SIZE {
        return None;
    }
    let size = usize::try_from(read_i32(rest, LENGTH)).ok()? + LOG_OVERHEAD;
    (size >= HEADER_SIZE).then(|| rest.get(..size)).flatten()
}

/// The CRC with the fields normalised that a mirror or a broker changes; that of the batch is right.
fn normalised_crc(batch: &[u8], codec: i16, corrector: &mut Corrector) -> u32 {
    let mut covered = [0xff; RECORDS_COUNT - ATTRIBUTES];
    let fields = &batch[ATTRIBUTES..RECORDS_COUNT];
    covered[..2].copy_from_slice(&codec.to_be_bytes());
    let kept = LAST_OFFSET_DELTA - ATTRIBUTES..MAX_TIMESTAMP - ATTRIBUTES;
    covered[kept.clone()].copy_from_slice(&fields[kept]);
    covered[MAX_TIMESTAMP - ATTRIBUTES..IDENTITY - ATTRIBUTES].fill(0);
    let payload = &batch[RECORDS_COUNT..];
    if payload.len() <= LARGEST_READ_AGAIN {
        return crc32c_of_two(&covered, payload);
    }
    read_i32(batch, CRC) as u32 ^ corrector.difference(fields, &covered, payload.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::tests::batch;

    #[test]
    fn equal_batches_have_equal_rows_whatever_a_mirror_changes() {
        let set = [batch(100, 3, b"abc"), batch(103, 1, b"d")].concat();
        let found = fingerprint_plain(&set, 0, 100, i64::MAX, false);
        assert_eq!(found.len(), 2 * 24);
        let mut copy = [batch(7, 3, b"abc"), batch(10, 1, b"d")].concat();
        let stamp = crate::walk::Stamp {
            first_offset: 7,
            end_offset: i64::MAX,
            producer_id: 1,
            producer_epoch: 2,
            base_sequence: 3,
            cleared: 0,
        };
        crate::walk::stamp_plain(&mut copy, 0, &stamp, &mut Vec::new());
        // As a broker appends them.
        let first = batch(100, 3, b"abc").len();
        copy[..8].copy_from_slice(&7i64.to_be_bytes());
        copy[first..first + 8].copy_from_slice(&10i64.to_be_bytes());
        assert_eq!(fingerprint_plain(&copy, 0, 7, i64::MAX, false), found);
    }

    #[test]
    fn normalised_crc_is_the_same_corrected_and_read_again() {
        for size in [LARGEST_READ_AGAIN - 4, LARGEST_READ_AGAIN - 3, 70_000] {
            let payload: Vec<u8> = (0..size).map(|at| (at * 31 + 7) as u8).collect();
            let set = batch(100, 3, &payload);
            let mut covered = [0xff; RECORDS_COUNT - ATTRIBUTES];
            covered[..2].copy_from_slice(&set[ATTRIBUTES..ATTRIBUTES + 2]);
            covered[2..14].copy_from_slice(&set[LAST_OFFSET_DELTA..MAX_TIMESTAMP]);
            covered[14..22].fill(0);
            let expected = crc32c_of_two(&covered, &set[RECORDS_COUNT..]);
            let found = fingerprint_plain(&set, 0, 100, i64::MAX, false);
            assert_eq!(found[..4], expected.to_le_bytes(), "{size} bytes");
        }
    }

    #[test]
    fn walk_ends_before_a_batch_whose_checksum_does_not_match() {
        let mut set = [batch(100, 3, b"abc"), batch(103, 1, b"d")].concat();
        *set.last_mut().expect("a payload") ^= 1;
        let found = fingerprint_plain(&set, 0, 100, i64::MAX, true);
        assert_eq!(found.len(), 24);
    }
}
