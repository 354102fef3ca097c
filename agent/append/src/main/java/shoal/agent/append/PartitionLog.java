package shoal.agent.append;

import java.io.IOException;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/**
 * The log of a partition that this broker leads, with all that one call of its {@code appendAsLeader} was given.
 *
 * <p>{@link LeaderLog} is that of a broker; tests have their own.
 */
interface PartitionLog {

    /** Returns what the log itself locks for every change. */
    Object lock();

    TopicPartition topicPartition();

    long logStartOffset();

    long logEndOffset();

    /** Returns what the log knows of a producer: its epoch and its last five batches. */
    Optional<ProducerStateEntry> producer(long producerId);

    /**
     * Reads the batch that has an offset, and perhaps others behind it, replicated or not.
     *
     * @throws org.apache.kafka.common.errors.OffsetOutOfRangeException this broker's disks do not have it
     */
    Records read(long offset) throws IOException;

    /** Returns the validator that the stock append would use for this batch alone. */
    LogValidator validator(MemoryRecords batch);

    /** Returns the request's own buffers, in which validators decompress. */
    BufferSupplier buffers();

    /** Runs the stock {@code appendAsLeader}, with these records instead of those that it was called with. */
    LogAppendInfo append(MemoryRecords records);

    /**
     * Returns what an append returns that found its records in the log.
     *
     * @param timestamp milliseconds since 1970: the greatest of the last batch, as the stock broker answers
     */
    LogAppendInfo alreadyAppended(long firstOffset, long lastOffset, long timestamp);
}
