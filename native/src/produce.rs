//! Produce requests and answers, v9 to v13.
//!
//! `ProduceRequest.json` and `ProduceResponse.json` of Kafka. Both are flexible from v9 on, and v13 lists a topic by
//! its id instead of its name (KIP-516). The reference is `shoal.protocol.produce`.

use crate::varint::{Reader, varint_size, write_varint};

const API_KEY: i16 = 0;

/// What all requests of a connection have in common.
pub struct Head {
    pub version: i16,
    pub client_id: Vec<u8>,
    pub acks: i16,
    pub timeout_ms: i32,
}

impl Head {
    /// Write the fields before the topics. The size is left empty: `write_size` has it.
    pub fn write(&self, correlation_id: i32, topics: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&API_KEY.to_be_bytes());
        to.extend_from_slice(&self.version.to_be_bytes());
        to.extend_from_slice(&correlation_id.to_be_bytes());
        to.extend_from_slice(&(self.client_id.len() as i16).to_be_bytes());
        to.extend_from_slice(&self.client_id);
        to.push(0); // no tagged fields
        to.push(0); // no transactional id
        to.extend_from_slice(&self.acks.to_be_bytes());
        to.extend_from_slice(&self.timeout_ms.to_be_bytes());
        write_length(topics, to);
    }
}

/// Write a compact array's or string's length.
pub fn write_length(length: usize, to: &mut Vec<u8>) {
    write_varint(length as u64 + 1, to);
}

/// Return the size of the answer that is expected, with its own size in front.
///
/// `topics` are, for each, how many bytes its name or id takes, and how many partitions it has. An answer with an
/// error in it is not shorter: its fields are the same, and it may have texts.
pub fn answer_size(topics: impl Iterator<Item = (usize, usize)>) -> usize {
    const SIZE_ID_TAGS: usize = 4 + 4 + 1;
    const PARTITION: usize = 4 + 2 + 8 + 8 + 8 + 3;
    const THROTTLE_TIME_TAGS: usize = 4 + 1;
    let mut count = 0;
    let mut size = SIZE_ID_TAGS + THROTTLE_TIME_TAGS;
    for (name, partitions) in topics {
        size += name + varint_size(partitions as u64 + 1) + partitions * PARTITION + 1;
        count += 1;
    }
    size + varint_size(count + 1)
}

/// Read an answer's correlation id.
pub fn correlation_id(frame: &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(..4)?.try_into().ok()?))
}

/// One partition's part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The topic's name, or its id.
    pub topic: &'a [u8],
    pub partition: i32,
    pub error_code: i16,
    pub base_offset: i64,
    /// The broker's message about the batches that it refuses.
    pub message: Option<&'a str>,
}

/// Read an answer, or return None if it is malformed.
pub fn read_outcomes(frame: &[u8], version: i16) -> Option<Vec<Outcome<'_>>> {
    let mut reader = Reader {
        rest: frame.get(4..)?,
    };
    let mut outcomes = Vec::new();
    reader.skip_tagged_fields()?;
    for _ in 0..reader.array_length()? {
        let topic = reader.topic(version)?;
        for _ in 0..reader.array_length()? {
            let partition = i32::from_be_bytes(reader.array()?);
            let error_code = i16::from_be_bytes(reader.array()?);
            let base_offset = i64::from_be_bytes(reader.array()?);
            reader.bytes(16)?; // the append time, and the log's start
            for _ in 0..reader.array_length()? {
                reader.bytes(4)?; // the batch's index
                reader.nullable_string()?;
                reader.skip_tagged_fields()?;
            }
            let message = reader.nullable_string()?;
            reader.skip_tagged_fields()?;
            outcomes.push(Outcome {
                topic,
                partition,
                error_code,
                base_offset,
                message,
            });
        }
        reader.skip_tagged_fields()?;
    }
    reader.bytes(4)?;
    reader.skip_tagged_fields()?;
    reader.rest.is_empty().then_some(outcomes)
}

/// Return a topic's name or id without the length that requests list before a name.
pub fn without_length(topic: &[u8], version: i16) -> &[u8] {
    if version >= 13 {
        return topic;
    }
    let length = topic.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    &topic[length.min(topic.len())..]
}

impl<'a> Reader<'a> {
    fn length(&mut self) -> Option<usize> {
        Some(self.varint(32)? as usize)
    }

    /// Read the length of an array; that of null is 0.
    fn array_length(&mut self) -> Option<usize> {
        let length = self.length()?.saturating_sub(1);
        (length <= self.rest.len()).then_some(length)
    }

    fn nullable_string(&mut self) -> Option<Option<&'a str>> {
        match self.length()? {
            0 => Some(None),
            length => Some(Some(std::str::from_utf8(self.bytes(length - 1)?).ok()?)),
        }
    }

    fn skip_tagged_fields(&mut self) -> Option<()> {
        for _ in 0..self.length()? {
            self.length()?;
            let size = self.length()?;
            self.bytes(size)?;
        }
        Some(())
    }

    /// Read a topic: its name, or its id from v13 on.
    fn topic(&mut self, version: i16) -> Option<&'a [u8]> {
        let length = if version >= 13 {
            16
        } else {
            self.length()?.checked_sub(1)?
        };
        self.bytes(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kafka 4.1's answer to Produce v12: `orders` 0 at offset 5, 2 at 17.
    const ANSWER: &str = "00000007 00 02 07 6f7264657273 03 \
        00000000 0000 0000000000000005 ffffffffffffffff 0000000000000000 01 00 00 \
        00000002 0000 0000000000000011 ffffffffffffffff 0000000000000000 01 00 00 00 00000000 00";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|each| !each.is_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex"))
            .collect()
    }

    /// An answer to Produce v12: `orders` 0 is refused, with a record's error, a message and the leader that has the
    /// partition now (KIP-951), 2 landed at 17; and the leader's address.
    const REFUSAL: &str = "00000007 00 02 07 6f7264657273 03 \
        00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 02 00000001 03 6162 00 03 c3a9 \
        01 00 05 0000000201 \
        00000002 0000 0000000000000011 ffffffffffffffff 0000000000000000 01 00 00 00 00000000 01 00 02 0102";

    #[test]
    fn answer_with_errors_and_tagged_fields_is_read() {
        let frame = bytes(REFUSAL);
        let outcome = |partition, error_code, base_offset, message| Outcome {
            topic: b"orders",
            partition,
            error_code,
            base_offset,
            message,
        };
        let expected = vec![outcome(0, 6, -1, Some("é")), outcome(2, 0, 17, None)];
        assert_eq!(read_outcomes(&frame, 12), Some(expected));
        assert_eq!(correlation_id(&frame), Some(7));
        let landed = vec![outcome(0, 0, 5, None), outcome(2, 0, 17, None)];
        assert_eq!(read_outcomes(&bytes(ANSWER), 12), Some(landed));
    }

    #[test]
    fn answer_that_is_cut_short_or_too_long_is_malformed() {
        for answer in [bytes(ANSWER), bytes(REFUSAL)] {
            for length in 0..answer.len() {
                assert_eq!(read_outcomes(&answer[..length], 12), None, "{length} bytes");
            }
            assert_eq!(read_outcomes(&[&answer[..], &[0]].concat(), 12), None);
        }
    }

    #[test]
    fn topic_is_compared_without_its_length() {
        assert_eq!(without_length(b"\x07orders", 12), b"orders");
        assert_eq!(without_length(b"\x81\x01name", 12), b"name");
        assert_eq!(without_length(b"0123456789abcdef", 13), b"0123456789abcdef");
    }

    #[test]
    fn lengths_are_written_as_varints() {
        for (length, expected) in [(0, "01"), (126, "7f"), (127, "8001"), (16_383, "808001")] {
            let mut written = Vec::new();
            write_length(length, &mut written);
            assert_eq!(written, bytes(expected));
            assert_eq!(varint_size(length as u64 + 1), written.len());
        }
    }

    #[test]
    fn size_of_the_expected_answer_is_known() {
        let answer = bytes(ANSWER);
        assert_eq!(answer_size([(7, 2)].into_iter()), 4 + answer.len());
    }
}
