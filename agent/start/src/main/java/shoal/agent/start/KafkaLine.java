package shoal.agent.start;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Versions of Kafka that are hooked in the same way, and how they differ from the oldest.
 *
 * <p>The agent is compiled against Kafka 4.1, and its hooks are written down with the names of 4.1. {@link Adaptation}
 * gives both the names of another line.
 */
enum KafkaLine {
    KAFKA_4_1(Map.of()),

    KAFKA_4_2(Map.of()),

    KAFKA_4_3(union(
            moved(
                    "org/apache/kafka/common/record/",
                    "org/apache/kafka/common/record/internal/",
                    "BaseRecords",
                    "CompressionType",
                    "DefaultRecordBatch",
                    "MemoryRecords",
                    "MutableRecordBatch",
                    "RecordBatch",
                    "Records"),
            moved("org/apache/kafka/common/record/", "org/apache/kafka/storage/internals/log/", "RecordValidationStats"))),

    KAFKA_4_4(union(
            KAFKA_4_3.moved,
            moved("kafka/network/RequestChannel$", "org/apache/kafka/network/", "Request"),
            moved(
                    "org/apache/kafka/common/utils/",
                    "org/apache/kafka/common/utils/internals/",
                    "BufferSupplier",
                    "PrimitiveRef$LongRef"),
            moved("shoal/agent/append/", "shoal/agent/kafka44/", "StockCalls")));

    private static final String VALIDATION_RESULT = "org/apache/kafka/storage/internals/log/LogValidator$ValidationResult";

    private final Map<String, String> moved;

    KafkaLine(Map<String, String> moved) {
        this.moved = moved;
    }

    /** Returns the classes that have another name than in 4.1, with slashes: the names in 4.1, and here. */
    Map<String, String> moved() {
        return moved;
    }

    /** Returns whether a class, by its name in 4.1, has become a record, so that its fields have accessors only. */
    boolean isRecord(String name) {
        return this != KAFKA_4_1 && name.equals(VALIDATION_RESULT);
    }

    /** Returns one hook for each of four classes. */
    List<Hook> hooks() {
        Adaptation adaptation = new Adaptation(this);
        return List.of(
                new Hook(
                        "kafka/server/KafkaApis",
                        "handleProduceRequest",
                        adaptation.descriptor("(Lkafka/network/RequestChannel$Request;"
                                + "Lorg/apache/kafka/server/common/RequestLocal;)V"),
                        "shoal/agent/append/Hooks",
                        2),
                new Hook(
                        "org/apache/kafka/common/requests/ProduceRequest",
                        "validateRecords",
                        adaptation.descriptor("(SLorg/apache/kafka/common/record/BaseRecords;)V"),
                        "shoal/agent/append/Admission",
                        2),
                new Hook(
                        "org/apache/kafka/storage/internals/log/UnifiedLog",
                        "appendAsLeader",
                        adaptation.descriptor("(Lorg/apache/kafka/common/record/MemoryRecords;I"
                                + "Lorg/apache/kafka/storage/internals/log/AppendOrigin;"
                                + "Lorg/apache/kafka/server/common/RequestLocal;"
                                + "Lorg/apache/kafka/storage/internals/log/VerificationGuard;"
                                + (this == KAFKA_4_1 ? "" : "S")
                                + ")Lorg/apache/kafka/storage/internals/log/LogAppendInfo;"),
                        "shoal/agent/append/Hooks",
                        4),
                new Hook(
                        "org/apache/kafka/storage/internals/log/LogValidator",
                        "validateMessagesAndAssignOffsets",
                        adaptation.descriptor("(Lorg/apache/kafka/common/utils/PrimitiveRef$LongRef;"
                                + "Lorg/apache/kafka/storage/internals/log/LogValidator$MetricsRecorder;"
                                + "Lorg/apache/kafka/common/utils/BufferSupplier;)"
                                + "Lorg/apache/kafka/storage/internals/log/LogValidator$ValidationResult;"),
                        "shoal/agent/append/SliceValidation",
                        2));
    }

    private static Map<String, String> moved(String from, String to, String... names) {
        return Arrays.stream(names).collect(Collectors.toMap(name -> from + name, name -> to + name));
    }

    @SafeVarargs
    private static Map<String, String> union(Map<String, String>... parts) {
        Map<String, String> all = new HashMap<>();
        Arrays.stream(parts).forEach(all::putAll);
        return all;
    }
}
