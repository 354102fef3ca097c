package shoal.agent.append;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.RecordValidationStats;
import org.apache.kafka.common.utils.PrimitiveRef.LongRef;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.LogValidator.MetricsRecorder;
import org.apache.kafka.storage.internals.log.LogValidator.ValidationResult;

/**
 * Runs the stock validator on each batch alone, one after the other.
 *
 * <p>It takes one compressed batch at a time, and knows one codec. It assigns offsets and the leader's epoch where
 * the batch lies, unless the topic asks for another codec: then it returns a new one.
 */
public final class SliceValidation {
    private final PartitionLog log;
    private final MemoryRecords records;

    SliceValidation(PartitionLog log, MemoryRecords records) {
        this.log = log;
        this.records = records;
    }

    /**
     * Appends batches by the stock append, in one piece, so that all of them are written or none.
     *
     * @param records admitted ones that the log does not have
     */
    static LogAppendInfo append(PartitionLog log, MemoryRecords records) {
        MarkedRequest.leave(new SliceValidation(log, records));
        try {
            return log.append(records);
        } finally {
            MarkedRequest.takeValidation(); // it is still there where the append failed before
        }
    }

    /** Returns a view of some bytes; its buffer begins at 0, since records take its limit for their size. */
    static MemoryRecords slice(MemoryRecords records, int position, int size) {
        return MemoryRecords.readableRecords(records.buffer().slice(position, size));
    }

    /**
     * The hook of {@code LogValidator.validateMessagesAndAssignOffsets}.
     *
     * @return null if the stock method has to run: for others, and for the batches of this one
     */
    public static ValidationResult validateMessagesAndAssignOffsets(
            LogValidator validator, LongRef offset, MetricsRecorder metrics) {
        SliceValidation validation = MarkedRequest.takeValidation();
        return validation == null ? null : validation.validate(offset, metrics);
    }

    private ValidationResult validate(LongRef offset, MetricsRecorder metrics) {
        List<MemoryRecords> validated = new ArrayList<>();
        RecordValidationStats stats = RecordValidationStats.EMPTY;
        long appendedAt = RecordBatch.NO_TIMESTAMP;
        long maxTimestamp = RecordBatch.NO_TIMESTAMP;
        boolean isInPlace = true;
        boolean sizeMayHaveChanged = false;
        int position = 0;
        for (MutableRecordBatch batch : records.batches()) {
            MemoryRecords slice = slice(records, position, batch.sizeInBytes());
            ValidationResult result =
                    log.validator(slice).validateMessagesAndAssignOffsets(offset, metrics, log.buffers());
            validated.add(result.validatedRecords);
            stats = sum(stats, result.recordValidationStats);
            appendedAt = result.logAppendTimeMs;
            maxTimestamp = Math.max(maxTimestamp, result.maxTimestampMs);
            isInPlace &= result.validatedRecords == slice;
            sizeMayHaveChanged |= result.messageSizeMaybeChanged;
            position += slice.sizeInBytes();
        }
        MemoryRecords whole = isInPlace ? records : joined(validated);
        return new ValidationResult(appendedAt, whole, maxTimestamp, sizeMayHaveChanged, stats);
    }

    /** Returns new numbers: from Kafka 4.3 on they cannot be changed. */
    private static RecordValidationStats sum(RecordValidationStats one, RecordValidationStats other) {
        return new RecordValidationStats(
                one.temporaryMemoryBytes() + other.temporaryMemoryBytes(),
                one.numRecordsConverted() + other.numRecordsConverted(),
                one.conversionTimeNanos() + other.conversionTimeNanos());
    }

    private static MemoryRecords joined(List<MemoryRecords> parts) {
        int size = parts.stream().mapToInt(MemoryRecords::sizeInBytes).sum();
        ByteBuffer buffer = ByteBuffer.allocate(size);
        parts.forEach(part -> buffer.put(part.buffer()));
        return MemoryRecords.readableRecords(buffer.flip());
    }
}
