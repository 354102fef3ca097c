package shoal.agent.start;

import java.io.File;
import java.io.IOException;
import java.net.URISyntaxException;
import java.net.URL;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** The agent's own classes that use Kafka's: each needs {@link Adaptation} before the JVM loads it. */
final class AgentClasses {
    private static final String PACKAGE = "shoal/agent/append/";

    private AgentClasses() {}

    /** Returns their names in a jar, with slashes, as far as this line of Kafka uses them. */
    static List<String> names(URL jar, KafkaLine line) {
        try (JarFile file = new JarFile(new File(jar.toURI()))) {
            return file.stream()
                    .map(JarEntry::getName)
                    .filter(entry -> entry.startsWith(PACKAGE) && entry.endsWith(".class"))
                    .map(entry -> entry.substring(0, entry.length() - ".class".length()))
                    .filter(name -> !line.moved().containsKey(name) && !name.endsWith("/package-info"))
                    .toList();
        } catch (IOException | URISyntaxException error) {
            throw new StartRefused("the agent's jar " + jar + " cannot be read", error);
        }
    }
}
