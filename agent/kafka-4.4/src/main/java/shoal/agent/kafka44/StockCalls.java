package shoal.agent.kafka44;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Request;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Takes the place of {@code shoal.agent.append.StockCalls} in a broker of Kafka 4.4. */
public final class StockCalls {

    private StockCalls() {}

    public static ProduceRequest body(Request request) {
        return request.body(ProduceRequest.class);
    }

    /** Returns the validator that {@code UnifiedLog.append} would use for this batch alone. */
    public static LogValidator validator(UnifiedLog log, MemoryRecords batch, int leaderEpoch, AppendOrigin origin) {
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
                RecordBatch.CURRENT_MAGIC_VALUE,
                config.messageTimestampType,
                config.messageTimestampBeforeMaxMs,
                config.messageTimestampAfterMaxMs,
                leaderEpoch,
                origin,
                config.maxDecompressedMessageBytes());
    }
}
