package shoal.agent.start;

import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;

/**
 * The Kafka that the class path holds, read without loading any of its classes.
 *
 * @param version such as 4.1.0
 * @param commit its first 16 hex digits
 * @param classes where its class files are
 */
record KafkaOnClassPath(String version, String commit, ClassLoader classes) {
    private static final String VERSION_FILE = "kafka/kafka-version.properties";

    static KafkaOnClassPath find() {
        return find(ClassLoader.getSystemClassLoader());
    }

    /**
     * Returns the Kafka of a class path; most of its jars say which version they are of.
     *
     * @throws StartRefused there is none, or jars of two versions
     */
    static KafkaOnClassPath find(ClassLoader classes) {
        Set<String> versions = new TreeSet<>();
        for (URL file : all(classes, VERSION_FILE)) {
            Properties properties = new Properties();
            try (InputStream stream = file.openStream()) {
                properties.load(stream);
            } catch (IOException error) {
                throw new StartRefused(file + " cannot be read", error);
            }
            versions.add(properties.getProperty("version") + " " + properties.getProperty("commitId"));
        }
        if (versions.size() != 1) {
            throw new StartRefused("the class path has jars of " + versions.size() + " versions of Kafka " + versions);
        }
        String[] found = versions.iterator().next().split(" ");
        return new KafkaOnClassPath(found[0], found[1], classes);
    }

    /**
     * Returns a class file.
     *
     * @param name with slashes, without .class
     * @throws StartRefused there is none on the class path, or more than one
     */
    byte[] classFile(String name) {
        List<URL> files = all(classes, name + ".class");
        if (files.size() != 1) {
            throw new StartRefused("the class path has " + files.size() + " class files of " + name + " " + files);
        }
        try (InputStream stream = files.get(0).openStream()) {
            return stream.readAllBytes();
        } catch (IOException error) {
            throw new StartRefused(files.get(0) + " cannot be read", error);
        }
    }

    private static List<URL> all(ClassLoader classes, String resource) {
        try {
            return Collections.list(classes.getResources(resource));
        } catch (IOException error) {
            throw new StartRefused(resource + " cannot be looked for", error);
        }
    }
}
