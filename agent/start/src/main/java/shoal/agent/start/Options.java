package shoal.agent.start;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import java.util.stream.Collectors;
import shoal.agent.append.MarkedClients;

/**
 * What the agent is told by its Java properties file.
 *
 * <ul>
 *   <li>{@code client.id.prefix}: what the client ids of those begin with who ask for it; not empty.
 *   <li>{@code principals}: who may have it, by {@code ;} as in Kafka's {@code super.users}. Only
 *       {@code User:ANONYMOUS} by default, so that on a listener that authenticates nobody may unless he is named.
 *   <li>{@code topics}: a regular expression for the whole names of the topics that may be written so.
 *   <li>{@code plain.topics}: likewise for the topics that take KIP-712's plain form, from any client id; none by
 *       default, since a retry is written again there.
 * </ul>
 *
 * @param markedClients what they amount to
 */
record Options(MarkedClients markedClients) {
    private static final String PREFIX = "client.id.prefix";
    private static final String PRINCIPALS = "principals";
    private static final String TOPICS = "topics";
    private static final String PLAIN_TOPICS = "plain.topics";

    /**
     * Reads the file, if there is one.
     *
     * @throws StartRefused it cannot be read, or says what is not understood
     */
    static Options read(String file) {
        Properties properties = new Properties();
        if (file != null && !file.isEmpty()) {
            try (Reader reader = Files.newBufferedReader(Path.of(file))) {
                properties.load(reader);
            } catch (IOException | IllegalArgumentException error) {
                throw new StartRefused("the options of " + file + " cannot be read", error);
            }
        }
        return of(properties);
    }

    static Options of(Properties properties) {
        Set<String> unknown = new TreeSet<>(properties.stringPropertyNames());
        unknown.removeAll(Set.of(PREFIX, PRINCIPALS, TOPICS, PLAIN_TOPICS));
        if (!unknown.isEmpty()) {
            throw new StartRefused("there is no option " + String.join(", ", unknown));
        }
        return new Options(new MarkedClients(
                prefix(properties.getProperty(PREFIX, "shoal-multi-batch").strip()),
                principals(properties.getProperty(PRINCIPALS, "User:ANONYMOUS")),
                pattern(TOPICS, properties.getProperty(TOPICS, ".*").strip()),
                plainTopics(properties.getProperty(PLAIN_TOPICS, "").strip())));
    }

    private static String prefix(String value) {
        if (value.isEmpty()) {
            throw new StartRefused("an empty " + PREFIX + " would mark every client");
        }
        return value;
    }

    private static Set<String> principals(String value) {
        Set<String> names = Arrays.stream(value.split(";"))
                .map(String::strip)
                .filter(Predicate.not(String::isEmpty))
                .collect(Collectors.toCollection(TreeSet::new));
        for (String name : names) {
            if (!name.matches("[^:]+:.+")) {
                throw new StartRefused(PRINCIPALS + ": " + name + " is not of the form User:name");
            }
        }
        if (names.isEmpty()) {
            throw new StartRefused(PRINCIPALS + " names nobody");
        }
        return names;
    }

    private static Pattern plainTopics(String value) {
        return value.isEmpty() ? null : pattern(PLAIN_TOPICS, value);
    }

    private static Pattern pattern(String option, String value) {
        try {
            return Pattern.compile(value);
        } catch (PatternSyntaxException error) {
            throw new StartRefused(option + " is no regular expression", error);
        }
    }

    @Override
    public String toString() {
        return "clients " + markedClients.clientIdPrefix() + "* of " + String.join(";", markedClients.principals())
                + " to topics " + markedClients.topics() + plain();
    }

    private String plain() {
        Pattern topics = markedClients.plainTopics();
        return topics == null ? "" : ", and without comparing from all of their clients to topics " + topics;
    }
}
