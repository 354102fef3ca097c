package shoal.agent.start;

import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.commons.ClassRemapper;
import org.objectweb.asm.commons.MethodRemapper;
import org.objectweb.asm.commons.Remapper;
import org.objectweb.asm.commons.SimpleRemapper;

/**
 * Makes what was compiled against Kafka 4.1 fit another {@link KafkaLine}.
 *
 * <p>Kafka moved classes into other packages and made some records, but did not change what the agent does with them.
 */
final class Adaptation {
    private final KafkaLine line;
    private final Remapper names;

    Adaptation(KafkaLine line) {
        this.line = line;
        names = new SimpleRemapper(line.moved());
    }

    /** Returns the descriptor of a method in this line. */
    String descriptor(String inKafka41) {
        return names.mapMethodDesc(inKafka41);
    }

    /** Returns the class file of a class of the agent for this line. */
    byte[] classFile(byte[] compiled) {
        ClassWriter writer = new ClassWriter(0);
        new ClassReader(compiled).accept(new Renamed(writer), 0);
        return writer.toByteArray();
    }

    private final class Renamed extends ClassRemapper {

        Renamed(ClassVisitor next) {
            super(Opcodes.ASM9, next, names);
        }

        @Override
        protected MethodVisitor createMethodRemapper(MethodVisitor next) {
            return new WithAccessors(next);
        }
    }

    /** Reads the fields of records by their accessors. */
    private final class WithAccessors extends MethodRemapper {

        WithAccessors(MethodVisitor next) {
            super(Opcodes.ASM9, next, names);
        }

        @Override
        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
            if (line.isRecord(owner)) {
                visitMethodInsn(Opcodes.INVOKEVIRTUAL, owner, name, "()" + descriptor, false);
            } else {
                super.visitFieldInsn(opcode, owner, name, descriptor);
            }
        }
    }
}
