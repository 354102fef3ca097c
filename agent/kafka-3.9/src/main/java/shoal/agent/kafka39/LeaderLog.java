package shoal.agent.kafka39;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import java.util.OptionalInt;
import kafka.log.UnifiedLog;
import kafka.server.RequestLocal;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordValidationStats;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import shoal.agent.append.PartitionLog;

/** A log of Kafka 3.9.x and the arguments of one {@code appendAsLeader}. */
record LeaderLog(
        UnifiedLog log,
        int leaderEpoch,
        AppendOrigin origin,
        MetadataVersion interBrokerProtocolVersion,
        RequestLocal requestLocal,
        VerificationGuard verificationGuard)
        implements PartitionLog {

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
        LogConfig config = log.config();
        CompressionType source = batch.firstBatch().compressionType();
        Compression target = BrokerCompressionType.targetCompression(config.compression, source);
        return new LogValidator(
                batch,
                log.topicPartition(),
                Time.SYSTEM,
                source,
                target,
                config.compact,
                config.recordVersion().value,
                config.messageTimestampType,
                config.messageTimestampBeforeMaxMs,
                config.messageTimestampAfterMaxMs,
                leaderEpoch,
                origin,
                interBrokerProtocolVersion);
    }

    @Override
    public LogAppendInfo append(MemoryRecords records) {
        return log.appendAsLeader(
                records, leaderEpoch, origin, interBrokerProtocolVersion, requestLocal, verificationGuard);
    }

    @Override
    public LogAppendInfo alreadyAppended(long firstOffset, long lastOffset, long timestamp) {
        return new LogAppendInfo(
                firstOffset,
                lastOffset,
                OptionalInt.empty(),
                timestamp,
                timestamp,
                log.logStartOffset(),
                RecordValidationStats.EMPTY,
                CompressionType.NONE,
                0,
                lastOffset);
    }
}
