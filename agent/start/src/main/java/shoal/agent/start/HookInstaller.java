package shoal.agent.start;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.net.URL;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.ProtectionDomain;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Puts the hooks into their classes as the JVM loads them, and adapts the agent's own classes to the line of Kafka.
 *
 * <p>All class files are checked and hooked on trial before the first class is loaded. Then all of them are loaded here,
 * in {@code premain}: the JVM swallows what a transformer throws, so each class that was changed is counted instead.
 */
final class HookInstaller implements ClassFileTransformer {
    private final SupportedVersion version;
    private final Adaptation adaptation;
    private final Map<String, Hook> hooks = new LinkedHashMap<>();
    private final List<String> ownClasses;
    private final Map<String, String> outcomes = new ConcurrentHashMap<>();

    private HookInstaller(SupportedVersion version) {
        this.version = version;
        adaptation = new Adaptation(version.line());
        version.line().hooks().forEach(hook -> hooks.put(hook.owner(), hook));
        URL jar = HookInstaller.class.getProtectionDomain().getCodeSource().getLocation();
        ownClasses = AgentClasses.names(jar, version.line());
    }

    /**
     * Installs all hooks.
     *
     * @throws StartRefused a class file is not the one that was tested, or was not changed; then the JVM must not run
     */
    static void install(SupportedVersion version, KafkaOnClassPath kafka, Instrumentation instrumentation) {
        HookInstaller installer = new HookInstaller(version);
        installer.hooks.forEach((name, hook) -> installer.hooked(hook, kafka.classFile(name)));
        instrumentation.addTransformer(installer);
        try {
            installer.ownClasses.forEach(name -> installer.load(name, kafka.classes()));
            installer.hooks.keySet().forEach(name -> installer.load(name, kafka.classes()));
        } finally {
            instrumentation.removeTransformer(installer);
        }
    }

    /** Returns a class file with its hook, having made sure that it is the one that was tested. */
    private byte[] hooked(Hook hook, byte[] classFile) {
        String expected = version.digests().get(hook.owner());
        String found = sha256(classFile);
        if (!found.equals(expected)) {
            throw new StartRefused("the class file of " + hook.owner().replace('/', '.') + " is not that of Kafka "
                    + version.version() + " as it was tested: its SHA-256 is " + found + ", not " + expected);
        }
        return HookWriter.write(hook, classFile);
    }

    private void load(String nameWithSlashes, ClassLoader classes) {
        String name = nameWithSlashes.replace('/', '.');
        try {
            // To ask for the methods links the class, and so has the JVM verify what was written; it runs nothing of it.
            Class.forName(name, false, classes).getDeclaredMethods();
        } catch (ClassNotFoundException | LinkageError error) {
            throw new StartRefused(name + " cannot be loaded with its change", error);
        }
        String outcome = outcomes.getOrDefault(nameWithSlashes, "it was loaded before the agent, by another one");
        if (!outcome.isEmpty()) {
            throw new StartRefused(name + " could not be changed: " + outcome);
        }
    }

    @Override
    public byte[] transform(
            ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] classFile) {
        if (name == null || !hooks.containsKey(name) && !ownClasses.contains(name)) {
            return null;
        }
        try {
            Hook hook = hooks.get(name);
            byte[] changed = hook == null ? adaptation.classFile(classFile) : hooked(hook, classFile);
            outcomes.put(name, "");
            return changed;
        } catch (RuntimeException | LinkageError error) {
            outcomes.put(name, error.getMessage() == null ? error.toString() : error.getMessage());
            return null;
        }
    }

    static String sha256(byte[] data) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error); // every Java has it
        }
    }
}
