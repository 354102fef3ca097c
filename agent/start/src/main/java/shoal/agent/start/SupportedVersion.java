package shoal.agent.start;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A version of Kafka that was tested with this agent, as {@code supported-kafka.txt} lists it.
 *
 * @param version such as 4.1.0
 * @param commit the first 16 hex digits of what it was built from
 * @param line how it is hooked
 * @param digests SHA-256 of the class files that are hooked, in hex, by their names with slashes
 */
record SupportedVersion(String version, String commit, KafkaLine line, Map<String, String> digests) {
    private static final String TABLE = "supported-kafka.txt";

    /**
     * Returns the version that is on the class path.
     *
     * @throws StartRefused it is not in the table, or was built from another commit
     */
    static SupportedVersion of(String version, String commit) {
        Map<String, SupportedVersion> all = all();
        SupportedVersion found = all.get(version);
        if (found == null) {
            throw new StartRefused("this agent was not tested with Kafka " + version + ", but with "
                    + String.join(", ", all.keySet()) + "; start the broker without it, or with another release of it");
        }
        if (!found.commit.equals(commit)) {
            throw new StartRefused("this Kafka " + version + " was built from commit " + commit
                    + ", the one that was tested from " + found.commit);
        }
        return found;
    }

    /** Returns all versions in the table, in its order. */
    static Map<String, SupportedVersion> all() {
        Map<String, SupportedVersion> found = new LinkedHashMap<>();
        try (InputStream stream = SupportedVersion.class.getResourceAsStream(TABLE);
                BufferedReader lines = new BufferedReader(new InputStreamReader(stream, StandardCharsets.US_ASCII))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.isBlank() || line.startsWith("#")) {
                    continue;
                }
                String[] words = line.strip().split("\\s+");
                if (line.startsWith(" ")) {
                    lastOf(found).digests.put(words[1], words[0]);
                } else {
                    found.put(words[0], new SupportedVersion(
                            words[0], words[1], KafkaLine.valueOf(words[2]), new LinkedHashMap<>()));
                }
            }
        } catch (IOException error) {
            throw new StartRefused(TABLE + " cannot be read", error);
        }
        return found;
    }

    private static SupportedVersion lastOf(Map<String, SupportedVersion> versions) {
        return versions.values().stream().reduce((first, second) -> second).orElseThrow();
    }
}
