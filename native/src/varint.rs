//! Reading bytes, and varints, which records and requests have: seven bits in a byte, the lowest first.

/// Return the bytes of a varint, and how many of them it has.
pub fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut last = 0;
    while value >= 0x80 {
        bytes[last] = value as u8 | 0x80;
        value >>= 7;
        last += 1;
    }
    bytes[last] = value as u8;
    (bytes, last + 1)
}

pub fn write_varint(value: u64, to: &mut Vec<u8>) {
    let (bytes, size) = varint(value);
    to.extend_from_slice(&bytes[..size]);
}

pub fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

pub struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        self.bytes(COUNT)?.try_into().ok()
    }

    /// Read a varint of at most so many bits.
    pub fn varint(&mut self, bits: u32) -> Option<u64> {
        let mut value: u64 = 0;
        for shift in (0..bits).step_by(7) {
            let [byte] = self.array()?;
            let part = u64::from(byte & 0x7f);
            if shift + 7 > bits && part >> (bits - shift) != 0 {
                return None;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}
