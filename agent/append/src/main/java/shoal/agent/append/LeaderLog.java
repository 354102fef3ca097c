package shoal.agent.append;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordValidationStats;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** A stock log and the arguments of one {@code appendAsLeader}. */
record LeaderLog(UnifiedLog log, int leaderEpoch, AppendOrigin origin, RequestLocal requestLocal) implements PartitionLog {

    private static final VarHandle LOCK = lockOf(UnifiedLog.class);

    private static VarHandle lockOf(Class<?> log) {
        try {
            return MethodHandles.privateLookupIn(log, MethodHandles.lookup())
                    .findVarHandle(log, "lock", Object.class);
        } catch (ReflectiveOperationException error) {
            throw new LinkageError("no lock in " + log.getName(), error);
        }
    }

    @Override
    public Object lock() {
        return LOCK.get(log);
    }

    @Override
    public TopicPartition topicPartition() {
        return log.topicPartition();
    }

    @Override
    public long logStartOffset() {
        return log.logStartOffset();
    }

    @Override
    public long logEndOffset() {
        return log.logEndOffset();
    }

    @Override
    public Optional<ProducerStateEntry> producer(long producerId) {
        return log.producerStateManager().lastEntry(producerId);
    }

    @Override
    public Records read(long offset) throws IOException {
        return log.read(offset, 1, FetchIsolation.LOG_END, true).records;
    }

    @Override
    public LogValidator validator(MemoryRecords batch) {
        return StockCalls.validator(log, batch, leaderEpoch, origin);
    }

    @Override
    public BufferSupplier buffers() {
        return requestLocal.bufferSupplier();
    }

    /**
     * Runs the overload that each line of Kafka has.
     *
     * <p>The longer one also takes the buffers, and arguments that only batches of a transaction need.
     */
    @Override
    public LogAppendInfo append(MemoryRecords records) {
        try {
            return log.appendAsLeader(records, leaderEpoch, origin);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public LogAppendInfo alreadyAppended(long firstOffset, long lastOffset, long timestamp) {
        return new LogAppendInfo(
                firstOffset,
                lastOffset,
                Optional.empty(),
                timestamp,
                timestamp,
                log.logStartOffset(),
                RecordValidationStats.EMPTY,
                CompressionType.NONE,
                0,
                lastOffset);
    }
}
