//! CRC-32C, and the correction of one for changed bytes.
//!
//! For two messages of the same length, `crc(a) ^ crc(b)` depends on `a ^ b` alone: the CRC is linear. If a few
//! bytes of a header change, the new checksum follows from the old one and the difference. The payload is not
//! read. Unlike a recomputed checksum, a corrected one still betrays a bit that flipped in the payload.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C, by Kafka's specification of a RecordBatch; its other name is iSCSI (RFC 3720).
const CRC_32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// Return the CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CRC_32C, bytes) as u32
}

/// Return the CRC-32C of two byte strings, one after the other.
pub fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = Digest::new(CRC_32C);
    digest.update(first);
    digest.update(second);
    digest.finalize() as u32
}

/// The Castagnoli polynomial, with its bits reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The polynomial 1, with its bits reflected.
const ONE: u32 = 1 << 31;

/// Multiply two polynomials modulo the CRC's, all with their bits reflected.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 1 {
            (b >> 1) ^ POLYNOMIAL
        } else {
            b >> 1
        };
        bit >>= 1;
    }
    product
}

/// The factors that shift a register by 1, 2, 4, 8, ... bytes.
const SHIFTS: [u32; 32] = {
    let mut shifts = [ONE >> 8; 32];
    let mut power = 1;
    while power < 32 {
        shifts[power] = multiply(shifts[power - 1], shifts[power - 1]);
        power += 1;
    }
    shifts
};

/// Corrects checksums; remembers the factor of the last length, since batches of a topic are often alike.
#[derive(Default)]
pub struct Corrector {
    length: u32,
    factor: u32,
}

impl Corrector {
    /// Return what to xor to a CRC-32C if a part of what it covers changes.
    ///
    /// `before` and `after` are that part, of the same length; `unchanged_after` bytes follow it.
    pub fn difference(&mut self, before: &[u8], after: &[u8], unchanged_after: u32) -> u32 {
        debug_assert_eq!(before.len(), after.len());
        let difference = crc32c(before) ^ crc32c(after);
        if self.length != unchanged_after || self.factor == 0 {
            self.length = unchanged_after;
            self.factor = factor(unchanged_after);
        }
        multiply(self.factor, difference)
    }
}

fn factor(bytes: u32) -> u32 {
    (0..32)
        .filter(|bit| bytes >> bit & 1 == 1)
        .fold(ONE, |factor, bit| multiply(SHIFTS[bit], factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_two_messages_is_that_of_their_checksums() {
        let mut corrector = Corrector::default();
        for length in [0usize, 1, 2, 3, 61, 255, 256, 8191, 70_000, 70_000] {
            let payload: Vec<u8> = (0..length).map(|at| (at * 31 + 7) as u8).collect();
            let (before, after) = (*b"before the cut", *b"after the cut!");
            let whole = |part: &[u8]| crc32c_of_two(part, &payload);
            assert_eq!(
                whole(&before) ^ whole(&after),
                corrector.difference(&before, &after, length as u32),
                "{length} bytes"
            );
        }
    }
}
