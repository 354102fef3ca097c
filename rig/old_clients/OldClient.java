import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients of old versions, as a program.
 *
 * <pre>
 * consume bootstrap=HOST:PORT topic=NAME (partitions=COUNT | group=NAME) [records=COUNT [commit=true]]
 * produce bootstrap=HOST:PORT topic=NAME
 * </pre>
 *
 * Both also accept {@code client.NAME=VALUE} for settings of the client. The package's docstring
 * describes input and output. The system property {@code limits=FETCH:3,PRODUCE:2} limits the versions of
 * these requests that the client sends.
 *
 * <p>One source for all versions from 0.9.0.1 on. Methods that some versions lack are called by reflection.
 */
public final class OldClient {
    private static final long POLL_MS = 200;

    /** Number of empty polls after which a reader ends. */
    private static final int QUIET_POLLS = 3;

    private final Map<String, String> options = new HashMap<>();
    private final Properties settings = new Properties();

    private long count;
    private TreeSet<Integer> assigned = new TreeSet<>();
    private final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();

    private OldClient(List<String> words) {
        for (String word : words) {
            int end = word.indexOf('=');
            String name = word.substring(0, end);
            String value = word.substring(end + 1);
            if (name.startsWith("client.")) {
                settings.put(name.substring("client.".length()), value);
            } else {
                options.put(name, value);
            }
        }
        settings.put("bootstrap.servers", options.get("bootstrap"));
    }

    public static void main(String[] words) throws Exception {
        limitVersions(System.getProperty("limits", ""));
        List<String> rest = Arrays.asList(words).subList(1, words.length);
        switch (words[0]) {
            case "consume":
                new OldClient(rest).consume();
                break;
            case "produce":
                new OldClient(rest).produce();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        System.out.flush();
    }

    private void consume() throws Exception {
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (options.containsKey("group")) {
            settings.put("group.id", options.get("group"));
        }
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (options.containsKey("group")) {
            consumer.subscribe(Collections.singletonList(options.get("topic")));
        } else {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int each = 0; each < Integer.parseInt(options.get("partitions")); each++) {
                partitions.add(new TopicPartition(options.get("topic"), each));
            }
            consumer.assign(partitions);
            for (TopicPartition each : partitions) {
                consumer.seek(each, 0);
            }
        }
        if (!options.containsKey("records")) {
            readUntilStopped(consumer);
        } else if (options.containsKey("commit")) {
            readAndCommit(consumer, Long.parseLong(options.get("records")));
        } else {
            read(consumer, Long.parseLong(options.get("records")));
        }
        consumer.close();
    }

    /** Reads until stdin ends. */
    private void readUntilStopped(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Thread stop = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException ended) {
                return;
            }
        });
        stop.setDaemon(true);
        stop.start();
        while (stop.isAlive()) {
            poll(consumer, Long.MAX_VALUE);
        }
    }

    /** Reads this many records, and any that follow soon. */
    private void read(KafkaConsumer<byte[], byte[]> consumer, long records) throws Exception {
        int quiet = 0;
        while (count < records || quiet < QUIET_POLLS) {
            quiet = poll(consumer, Long.MAX_VALUE) > 0 ? 0 : quiet + 1;
        }
    }

    /** Reads exactly this many records, and commits them. */
    private void readAndCommit(KafkaConsumer<byte[], byte[]> consumer, long records) throws Exception {
        while (count < records) {
            poll(consumer, records - count);
        }
        consumer.commitSync(next);
    }

    private int poll(KafkaConsumer<byte[], byte[]> consumer, long most) throws Exception {
        int told = 0;
        Iterable<ConsumerRecord<byte[], byte[]>> found = consumer.poll(POLL_MS);
        TreeSet<Integer> now = new TreeSet<>();
        for (TopicPartition each : consumer.assignment()) {
            now.add(each.partition());
        }
        if (!now.equals(assigned)) {
            assigned = now;
            say("{\"assigned\": " + now + "}");
        }
        for (ConsumerRecord<byte[], byte[]> each : found) {
            if (told == most) {
                break;
            }
            told++;
            tell(each);
            next.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        count += told;
        return told;
    }

    private static void tell(ConsumerRecord<byte[], byte[]> each) throws Exception {
        Object timestamp = ifThere(each, "timestamp");
        Object type = ifThere(each, "timestampType");
        boolean hasType = type != null && !type.toString().equals("NoTimestampType");
        Object headers = ifThere(each, "headers");
        StringBuilder told = new StringBuilder();
        for (Object header : headers == null ? Collections.emptyList() : (Iterable<?>) headers) {
            told.append(told.length() == 0 ? "" : ", ");
            told.append("[").append(quoted((String) ifThere(header, "key")));
            told.append(", ").append(text((byte[]) ifThere(header, "value"))).append("]");
        }
        say("{\"partition\": " + each.partition()
                + ", \"offset\": " + each.offset()
                + ", \"timestamp\": " + (timestamp == null ? -1 : timestamp)
                + ", \"timestamp_type\": \"" + (hasType ? type : "none") + "\""
                + ", \"key\": " + text(each.key())
                + ", \"value\": " + text(each.value())
                + ", \"headers\": [" + told + "]}");
    }

    private void produce() throws Exception {
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            int partition = Integer.parseInt(words[0]);
            Long timestamp = words[1].equals("-") ? null : Long.valueOf(words[1]);
            sent.add(producer.send(record(options.get("topic"), partition, timestamp, bytes(words[2]), bytes(words[3]))));
        }
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata acknowledged = each.get(60, TimeUnit.SECONDS);
            say("{\"partition\": " + acknowledged.partition() + ", \"offset\": " + acknowledged.offset() + "}");
        }
        producer.close();
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(
            String topic, int partition, Long timestamp, byte[] key, byte[] value) throws Exception {
        if (timestamp == null) {
            return new ProducerRecord<>(topic, partition, key, value);
        }
        Constructor<?> ofRecord = ProducerRecord.class.getConstructor(
                String.class, Integer.class, Long.class, Object.class, Object.class);
        return (ProducerRecord<byte[], byte[]>) ofRecord.newInstance(topic, partition, timestamp, key, value);
    }

    /** Sets the newest version of requests, in the field of each generation of the client. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void limitVersions(String limits) throws Exception {
        for (String limit : limits.isEmpty() ? new String[0] : limits.split(",")) {
            String name = limit.substring(0, limit.indexOf(':'));
            short version = Short.parseShort(limit.substring(limit.indexOf(':') + 1));
            Class keys = Class.forName("org.apache.kafka.common.protocol.ApiKeys");
            Object key = Enum.valueOf(keys, name);
            try {
                Object type = field(keys, "messageType").get(key);
                field(type.getClass(), "highestSupportedVersion").setShort(type, version);
            } catch (NoSuchFieldException before2_8) {
                for (String schemas : new String[] {"requestSchemas", "responseSchemas"}) {
                    Field field = field(keys, schemas);
                    field.set(key, Arrays.copyOf((Object[]) field.get(key), version + 1));
                }
            }
            Object latest = keys.getMethod("latestVersion").invoke(key);
            if (!latest.equals(version)) {
                throw new IllegalStateException(name + " goes up to " + latest);
            }
        }
    }

    private static Field field(Class<?> of, String name) throws NoSuchFieldException {
        Field found = of.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    private static Object ifThere(Object of, String name) throws Exception {
        try {
            Method method = of.getClass().getMethod(name);
            method.setAccessible(true);
            return method.invoke(of);
        } catch (NoSuchMethodException inThisVersion) {
            return null;
        }
    }

    private static String text(byte[] data) {
        return data == null ? "null" : "\"" + Base64.getEncoder().encodeToString(data) + "\"";
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String quoted(String text) {
        StringBuilder escaped = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            escaped.append(String.format("\\u%04x", (int) each));
        }
        return escaped.append('"').toString();
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
