package shoal.agent.start;

import java.util.List;

/** Versions of Kafka that are hooked in the same way. */
enum KafkaLine {
    KAFKA_3_9(
            "shoal/agent/kafka39/Hooks",
            "(Lkafka/network/RequestChannel$Request;Lkafka/server/RequestLocal;)V",
            "kafka/log/UnifiedLog",
            "(Lorg/apache/kafka/common/record/MemoryRecords;I"
                    + "Lorg/apache/kafka/storage/internals/log/AppendOrigin;"
                    + "Lorg/apache/kafka/server/common/MetadataVersion;"
                    + "Lkafka/server/RequestLocal;"
                    + "Lorg/apache/kafka/storage/internals/log/VerificationGuard;)"
                    + "Lorg/apache/kafka/storage/internals/log/LogAppendInfo;"),
    KAFKA_4_1(
            "shoal/agent/kafka41/Hooks",
            "(Lkafka/network/RequestChannel$Request;Lorg/apache/kafka/server/common/RequestLocal;)V",
            "org/apache/kafka/storage/internals/log/UnifiedLog",
            "(Lorg/apache/kafka/common/record/MemoryRecords;I"
                    + "Lorg/apache/kafka/storage/internals/log/AppendOrigin;"
                    + "Lorg/apache/kafka/server/common/RequestLocal;"
                    + "Lorg/apache/kafka/storage/internals/log/VerificationGuard;)"
                    + "Lorg/apache/kafka/storage/internals/log/LogAppendInfo;");

    private final List<Hook> hooks;

    KafkaLine(String handler, String handleProduceRequest, String unifiedLog, String appendAsLeader) {
        hooks = List.of(
                new Hook("kafka/server/KafkaApis", "handleProduceRequest", handleProduceRequest, handler),
                new Hook(
                        "org/apache/kafka/common/requests/ProduceRequest",
                        "validateRecords",
                        "(SLorg/apache/kafka/common/record/BaseRecords;)V",
                        "shoal/agent/append/Admission"),
                new Hook(unifiedLog, "appendAsLeader", appendAsLeader, handler),
                new Hook(
                        "org/apache/kafka/storage/internals/log/LogValidator",
                        "validateMessagesAndAssignOffsets",
                        "(Lorg/apache/kafka/common/utils/PrimitiveRef$LongRef;"
                                + "Lorg/apache/kafka/storage/internals/log/LogValidator$MetricsRecorder;"
                                + "Lorg/apache/kafka/common/utils/BufferSupplier;)"
                                + "Lorg/apache/kafka/storage/internals/log/LogValidator$ValidationResult;",
                        "shoal/agent/append/SliceValidation"));
    }

    /** Returns one hook for each of four classes. */
    List<Hook> hooks() {
        return hooks;
    }
}
