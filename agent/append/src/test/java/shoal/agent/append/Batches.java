package shoal.agent.append;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.stream.IntStream;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/** Record sets for tests, by Kafka's own builders. */
final class Batches {
    static final long PRODUCER = 4711;
    static final short EPOCH = 2;

    private Batches() {}

    /** Returns one batch whose first record has this sequence. */
    static MemoryRecords batch(int sequence, int count) {
        return batch(PRODUCER, EPOCH, sequence, count);
    }

    static MemoryRecords batch(long producerId, short epoch, int sequence, int count) {
        return MemoryRecords.withIdempotentRecords(Compression.NONE, producerId, epoch, sequence, records(count));
    }

    /** Returns batches of so many records each, without a gap in their sequences. */
    static MemoryRecords following(int sequence, int... counts) {
        MemoryRecords[] batches = new MemoryRecords[counts.length];
        for (int i = 0; i < counts.length; i++) {
            batches[i] = batch(sequence, counts[i]);
            sequence = DefaultRecordBatch.incrementSequence(sequence, counts[i]);
        }
        return joined(batches);
    }

    static MemoryRecords joined(MemoryRecords... parts) {
        ByteBuffer buffer = ByteBuffer.allocate(
                Arrays.stream(parts).mapToInt(MemoryRecords::sizeInBytes).sum());
        Arrays.stream(parts).forEach(part -> buffer.put(part.buffer()));
        return MemoryRecords.readableRecords(buffer.flip());
    }

    static SimpleRecord[] records(int count) {
        return IntStream.range(0, count)
                .mapToObj(i -> new SimpleRecord(1_600_000_000_000L + i, new byte[] {(byte) i}, "value".getBytes()))
                .toArray(SimpleRecord[]::new);
    }
}
