package shoal.agent.append;

import kafka.network.RequestChannel;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.reflect.ClassTag$;

/** Calls into Kafka 4.1 to 4.3 that Kafka 4.4 takes with other arguments: {@code agent/kafka-4.4} has its own. */
final class StockCalls {

    private StockCalls() {}

    static ProduceRequest body(RequestChannel.Request request) {
        return request.body(ClassTag$.MODULE$.apply(ProduceRequest.class));
    }

    /** Returns the validator that {@code UnifiedLog.append} would use for this batch alone. */
    static LogValidator validator(UnifiedLog log, MemoryRecords batch, int leaderEpoch, AppendOrigin origin) {
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
                origin);
    }
}
