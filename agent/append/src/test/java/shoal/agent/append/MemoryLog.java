package shoal.agent.append;

import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/** A log that tests fill; it is only ever read. */
final class MemoryLog implements PartitionLog {
    private final TreeMap<Long, MemoryRecords> batches = new TreeMap<>();
    private ProducerStateEntry producer;
    private long startOffset;
    private long endOffset;

    void startAt(long offset) {
        startOffset = offset;
        endOffset = offset;
    }

    void store(MemoryRecords records) {
        int position = 0;
        for (RecordBatch batch : records.batches()) {
            ByteBuffer copy = ByteBuffer.allocate(batch.sizeInBytes());
            copy.put(records.buffer().slice(position, batch.sizeInBytes())).flip();
            MemoryRecords stored = MemoryRecords.readableRecords(copy);
            MutableRecordBatch header = stored.batches().iterator().next();
            header.setLastOffset(endOffset + batch.countOrNull() - 1);
            batches.put(endOffset, stored);
            endOffset += batch.countOrNull();
            position += batch.sizeInBytes();
        }
    }

    /** Makes this batch the last one that is known of its producer. */
    void remember(MemoryRecords records) {
        RecordBatch batch = records.batches().iterator().next();
        BatchMetadata metadata = new BatchMetadata(
                batch.lastSequence(), batch.countOrNull() - 1L, batch.countOrNull() - 1, batch.maxTimestamp());
        producer = new ProducerStateEntry(
                batch.producerId(), batch.producerEpoch(), -1, -1, OptionalLong.empty(), Optional.of(metadata));
    }

    void deleteBefore(long offset) {
        startOffset = offset;
        batches.headMap(offset).clear();
    }

    @Override
    public Object lock() {
        return this;
    }

    @Override
    public TopicPartition topicPartition() {
        return new TopicPartition("topic", 0);
    }

    @Override
    public long logStartOffset() {
        return startOffset;
    }

    @Override
    public long logEndOffset() {
        return endOffset;
    }

    @Override
    public Optional<ProducerStateEntry> producer(long producerId) {
        return Optional.ofNullable(producer).filter(known -> known.producerId() == producerId);
    }

    @Override
    public Records read(long offset) {
        if (offset < startOffset || offset > endOffset) {
            throw new OffsetOutOfRangeException(startOffset + " to " + endOffset + " has no " + offset);
        }
        return batches.floorEntry(offset).getValue();
    }

    @Override
    public LogValidator validator(MemoryRecords batch) {
        throw new UnsupportedOperationException();
    }

    @Override
    public BufferSupplier buffers() {
        throw new UnsupportedOperationException();
    }

    @Override
    public LogAppendInfo append(MemoryRecords records) {
        throw new UnsupportedOperationException();
    }

    @Override
    public LogAppendInfo alreadyAppended(long firstOffset, long lastOffset, long timestamp) {
        throw new UnsupportedOperationException();
    }
}
