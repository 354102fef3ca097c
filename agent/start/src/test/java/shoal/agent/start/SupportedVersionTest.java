package shoal.agent.start;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.util.CheckClassAdapter;

/** Each version in the table against its own jars, which Maven has put into {@code target/kafka-jars}. */
class SupportedVersionTest {
    static final Path JARS = Path.of("target", "kafka-jars");

    static Collection<SupportedVersion> versions() {
        return SupportedVersion.all().values();
    }

    @ParameterizedTest
    @MethodSource("versions")
    void theTableHasVersionCommitAndDigestsOfItsJars(SupportedVersion version) throws IOException {
        KafkaOnClassPath kafka = kafka(version.version());
        assertEquals(version.version(), kafka.version());
        assertEquals(version.commit(), kafka.commit());
        Set<String> hooked = version.line().hooks().stream().map(Hook::owner).collect(Collectors.toSet());
        assertEquals(hooked, version.digests().keySet());
        for (String name : hooked) {
            assertEquals(version.digests().get(name), HookInstaller.sha256(kafka.classFile(name)), name);
        }
    }

    @ParameterizedTest
    @MethodSource("versions")
    void everyHookCallsItsHandlerFirstAndThatExists(SupportedVersion version) throws IOException {
        KafkaOnClassPath kafka = kafka(version.version());
        for (Hook hook : version.line().hooks()) {
            byte[] hooked = HookWriter.write(hook, kafka.classFile(hook.owner()));
            new ClassReader(hooked).accept(new CheckClassAdapter(new ClassWriter(0), false), 0);
            String handler = firstCall(hook, hooked);
            assertTrue(handler.startsWith(hook.handler() + "." + hook.method() + "("), handler);
            assertTrue(publicStaticMethods(hook.handler(), version.line()).contains(handler), handler);
        }
    }

    @ParameterizedTest
    @MethodSource("versions")
    void everythingElseStaysAsItWas(SupportedVersion version) throws IOException {
        KafkaOnClassPath kafka = kafka(version.version());
        for (Hook hook : version.line().hooks()) {
            byte[] stock = kafka.classFile(hook.owner());
            List<String> before = instructions(hook, stock);
            List<String> after = instructions(hook, HookWriter.write(hook, stock));
            assertEquals(before, after.subList(after.size() - before.size(), after.size()));
        }
    }

    @Test
    void aMethodThatIsNotThereIsRefused() throws IOException {
        SupportedVersion version = versions().iterator().next();
        Hook hook = version.line().hooks().get(0);
        Hook wrong = new Hook(hook.owner(), hook.method(), "()V", hook.handler(), 0);
        byte[] stock = kafka(version.version()).classFile(hook.owner());
        StartRefused refused = assertThrows(StartRefused.class, () -> HookWriter.write(wrong, stock));
        assertEquals(
                "kafka.server.KafkaApis has 0 methods handleProduceRequest ()V, not one", refused.getMessage());
    }

    @Test
    void aVersionThatIsNotInTheTableIsRefusedAndSoIsAnotherCommit() {
        String unknown = assertThrows(StartRefused.class, () -> SupportedVersion.of("9.9.9", "0123456789abcdef"))
                .getMessage();
        assertTrue(unknown.startsWith("this agent was not tested with Kafka 9.9.9, but with 4.1.0, "), unknown);
        String other = assertThrows(StartRefused.class, () -> SupportedVersion.of("4.1.0", "0123456789abcdef"))
                .getMessage();
        assertTrue(other.startsWith("this Kafka 4.1.0 was built from commit 0123456789abcdef,"), other);
    }

    @Test
    void twoKafkasOnTheClassPathAreRefused() throws IOException {
        List<URL> jars = jars("4.1.0");
        jars.addAll(jars("4.4.0"));
        URLClassLoader both = new URLClassLoader(jars.toArray(URL[]::new), null);
        String message = assertThrows(StartRefused.class, () -> KafkaOnClassPath.find(both)).getMessage();
        assertTrue(message.startsWith("the class path has jars of 2 versions of Kafka [4.1.0 "), message);
    }

    private static KafkaOnClassPath kafka(String version) throws IOException {
        return KafkaOnClassPath.find(new URLClassLoader(jars(version).toArray(URL[]::new), null));
    }

    static List<URL> jars(String version) throws IOException {
        List<URL> jars = new ArrayList<>();
        try (var files = Files.newDirectoryStream(JARS, "*-" + version + ".jar")) {
            for (Path file : files) {
                jars.add(url(file));
            }
        }
        return jars;
    }

    static URL url(Path file) {
        try {
            return file.toUri().toURL();
        } catch (MalformedURLException error) {
            throw new AssertionError(error);
        }
    }

    private static String firstCall(Hook hook, byte[] classFile) {
        return instructions(hook, classFile).stream()
                .filter(each -> each.startsWith("call "))
                .findFirst()
                .orElseThrow()
                .substring("call ".length());
    }

    /** Returns the code of the hooked method, as far as tests need it. */
    private static List<String> instructions(Hook hook, byte[] classFile) {
        List<String> found = new ArrayList<>();
        new ClassReader(classFile)
                .accept(
                        new ClassVisitor(Opcodes.ASM9) {
                            @Override
                            public MethodVisitor visitMethod(
                                    int access, String name, String descriptor, String signature, String[] throwing) {
                                boolean isHooked = name.equals(hook.method()) && descriptor.equals(hook.descriptor());
                                return isHooked ? new Instructions(found) : null;
                            }
                        },
                        0);
        return found;
    }

    private static Set<String> publicStaticMethods(String owner, KafkaLine line) throws IOException {
        List<String> found = new ArrayList<>();
        try (InputStream classFile = SupportedVersionTest.class.getResourceAsStream("/" + owner + ".class")) {
            new ClassReader(new Adaptation(line).classFile(classFile.readAllBytes()))
                    .accept(
                            new ClassVisitor(Opcodes.ASM9) {
                                @Override
                                public MethodVisitor visitMethod(
                                        int access, String name, String descriptor, String signature, String[] thrown) {
                                    int both = Opcodes.ACC_PUBLIC | Opcodes.ACC_STATIC;
                                    if ((access & both) == both) {
                                        found.add(owner + "." + name + descriptor);
                                    }
                                    return null;
                                }
                            },
                            0);
        }
        return Set.copyOf(found);
    }

    /** Writes a method's instructions down, one string each. */
    private static final class Instructions extends MethodVisitor {
        private final List<String> found;

        Instructions(List<String> found) {
            super(Opcodes.ASM9);
            this.found = found;
        }

        @Override
        public void visitInsn(int opcode) {
            found.add("op " + opcode);
        }

        @Override
        public void visitVarInsn(int opcode, int local) {
            found.add("op " + opcode + " " + local);
        }

        @Override
        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
            found.add("field " + owner + "." + name);
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            found.add("call " + owner + "." + name + descriptor);
        }

        @Override
        public void visitTypeInsn(int opcode, String type) {
            found.add("op " + opcode + " " + type);
        }

        @Override
        public void visitJumpInsn(int opcode, org.objectweb.asm.Label label) {
            found.add("op " + opcode);
        }
    }
}
