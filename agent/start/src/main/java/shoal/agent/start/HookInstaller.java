package shoal.agent.start;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.ProtectionDomain;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Puts the hooks into their classes as the JVM loads them.
 *
 * <p>All class files are checked and hooked on trial before the first class is loaded. Then they are loaded here, in
 * {@code premain}: the JVM swallows what a transformer throws, so each class that was hooked is counted instead.
 */
final class HookInstaller implements ClassFileTransformer {
    private final SupportedVersion version;
    private final Map<String, Hook> hooks = new HashMap<>();
    private final Map<String, String> outcomes = new ConcurrentHashMap<>();

    private HookInstaller(SupportedVersion version) {
        this.version = version;
        version.line().hooks().forEach(hook -> hooks.put(hook.owner(), hook));
    }

    /**
     * Installs all hooks.
     *
     * @throws StartRefused a class file is not the one that was tested, or was not hooked; then the JVM must not run
     */
    static void install(SupportedVersion version, KafkaOnClassPath kafka, Instrumentation instrumentation) {
        HookInstaller installer = new HookInstaller(version);
        version.line().hooks().forEach(hook -> installer.hooked(hook, kafka.classFile(hook.owner())));
        instrumentation.addTransformer(installer);
        try {
            version.line().hooks().forEach(hook -> installer.load(hook, kafka.classes()));
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

    private void load(Hook hook, ClassLoader classes) {
        String name = hook.owner().replace('/', '.');
        try {
            // To ask for the methods links the class, and so has the JVM verify what was written; it runs nothing of it.
            Class.forName(name, false, classes).getDeclaredMethods();
        } catch (ClassNotFoundException | LinkageError error) {
            throw new StartRefused(name + " cannot be loaded with its hook", error);
        }
        String outcome = outcomes.getOrDefault(hook.owner(), "it was loaded before the agent, by another one");
        if (!outcome.isEmpty()) {
            throw new StartRefused(name + " could not be hooked: " + outcome);
        }
    }

    @Override
    public byte[] transform(
            ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] classFile) {
        Hook hook = name == null ? null : hooks.get(name);
        if (hook == null) {
            return null;
        }
        try {
            byte[] hooked = hooked(hook, classFile);
            outcomes.put(name, "");
            return hooked;
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
