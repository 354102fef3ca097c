package shoal.agent.start;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodHandles.Lookup;
import java.lang.invoke.MethodType;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.Handle;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import shoal.agent.append.MarkedRequest;

/** The agent's classes, adapted to each line of Kafka, against the jars of its newest version. */
class AdaptationTest {
    private static final String REPLACEMENT = "shoal/agent/kafka44/StockCalls";

    /** The table has each line's newest version last. */
    static Collection<SupportedVersion> newestOfEachLine() {
        Map<KafkaLine, SupportedVersion> newest = new EnumMap<>(KafkaLine.class);
        SupportedVersion.all().values().forEach(version -> newest.put(version.line(), version));
        return newest.values();
    }

    @ParameterizedTest
    @MethodSource("newestOfEachLine")
    void everyMethodAndFieldThatTheAgentUsesIsThereAndPublic(SupportedVersion version) throws IOException {
        KafkaLine line = version.line();
        Set<Use> uses = new TreeSet<>();
        for (String name : AgentClasses.names(agentJar(), line)) {
            uses.addAll(uses(new Adaptation(line).classFile(compiled(name))));
        }
        if (line.moved().containsValue(REPLACEMENT)) {
            uses.addAll(uses(compiled(REPLACEMENT)));
        }
        assertTrue(uses.size() > 50, uses.toString());
        List<String> missing = new ArrayList<>();
        try (URLClassLoader kafka = new URLClassLoader(kafkaJars(version.version()), ClassLoader.getPlatformClassLoader())) {
            for (Use use : uses) {
                try {
                    use.lookUp(kafka);
                } catch (ReflectiveOperationException | LinkageError | TypeNotPresentException error) {
                    missing.add(use + ": " + error);
                }
            }
        }
        assertEquals(List.of(), missing);
    }

    @Test
    void aClassThatALineReplacesIsNotAdaptedToIt() {
        String replaced = "shoal/agent/append/StockCalls";
        assertTrue(AgentClasses.names(agentJar(), KafkaLine.KAFKA_4_3).contains(replaced));
        assertFalse(AgentClasses.names(agentJar(), KafkaLine.KAFKA_4_4).contains(replaced));
    }

    private static URL agentJar() {
        return MarkedRequest.class.getProtectionDomain().getCodeSource().getLocation();
    }

    private static URL[] kafkaJars(String version) throws IOException {
        List<URL> jars = SupportedVersionTest.jars(version);
        jars.add(SupportedVersionTest.url(SupportedVersionTest.JARS.resolve("scala-library-2.13.16.jar")));
        return jars.toArray(URL[]::new);
    }

    private static byte[] compiled(String name) throws IOException {
        try (InputStream classFile = AdaptationTest.class.getResourceAsStream("/" + name + ".class")) {
            return classFile.readAllBytes();
        }
    }

    private static Set<Use> uses(byte[] classFile) {
        Set<Use> found = new TreeSet<>();
        new ClassReader(classFile)
                .accept(
                        new ClassVisitor(Opcodes.ASM9) {
                            @Override
                            public MethodVisitor visitMethod(
                                    int access, String name, String descriptor, String signature, String[] throwing) {
                                return new UsesOfKafka(found);
                            }
                        },
                        0);
        return found;
    }

    /** A method or a field of Kafka; the kind is an H_ constant of {@link Opcodes}. */
    private record Use(String owner, String name, String descriptor, int kind) implements Comparable<Use> {

        /** Throws if code outside of Kafka cannot use it. */
        void lookUp(ClassLoader kafka) throws ReflectiveOperationException {
            Lookup lookup = MethodHandles.publicLookup();
            Class<?> type = Class.forName(owner.replace('/', '.'), false, kafka);
            boolean isField = !descriptor.startsWith("(");
            MethodType types = MethodType.fromMethodDescriptorString(isField ? "()" + descriptor : descriptor, kafka);
            switch (kind) {
                case Opcodes.H_GETFIELD -> lookup.findGetter(type, name, types.returnType());
                case Opcodes.H_GETSTATIC -> lookup.findStaticGetter(type, name, types.returnType());
                case Opcodes.H_INVOKESTATIC -> lookup.findStatic(type, name, types);
                case Opcodes.H_NEWINVOKESPECIAL -> lookup.findConstructor(type, types);
                case Opcodes.H_INVOKEVIRTUAL, Opcodes.H_INVOKEINTERFACE -> {
                    lookup.findVirtual(type, name, types);
                    if (type.isInterface() != (kind == Opcodes.H_INVOKEINTERFACE)) {
                        throw new IncompatibleClassChangeError("is it an interface? " + type.isInterface());
                    }
                }
                default -> throw new AssertionError(this);
            }
        }

        @Override
        public int compareTo(Use other) {
            return toString().compareTo(other.toString());
        }
    }

    private static final class UsesOfKafka extends MethodVisitor {
        private final Set<Use> found;

        UsesOfKafka(Set<Use> found) {
            super(Opcodes.ASM9);
            this.found = found;
        }

        private void add(String owner, String name, String descriptor, int kind) {
            if (owner.startsWith("org/apache/kafka/") || owner.startsWith("kafka/")) {
                found.add(new Use(owner, name, descriptor, kind));
            }
        }

        @Override
        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
            int kind = opcode == Opcodes.GETFIELD ? Opcodes.H_GETFIELD : Opcodes.H_GETSTATIC;
            add(owner, name, descriptor, kind);
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            int kind = switch (opcode) {
                case Opcodes.INVOKESTATIC -> Opcodes.H_INVOKESTATIC;
                case Opcodes.INVOKEINTERFACE -> Opcodes.H_INVOKEINTERFACE;
                case Opcodes.INVOKESPECIAL -> Opcodes.H_NEWINVOKESPECIAL;
                default -> Opcodes.H_INVOKEVIRTUAL;
            };
            add(owner, name, descriptor, kind);
        }

        @Override
        public void visitInvokeDynamicInsn(String name, String descriptor, Handle bootstrap, Object... arguments) {
            for (Object argument : arguments) {
                if (argument instanceof Handle handle) {
                    add(handle.getOwner(), handle.getName(), handle.getDesc(), handle.getTag());
                }
            }
        }
    }
}
