package shoal.agent.start;

import java.util.Arrays;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/** Writes a {@link Hook} into a class file; every other method, and all the code behind the hook, stays as it is. */
final class HookWriter extends ClassVisitor {
    private final Hook hook;
    private int matches;

    private HookWriter(Hook hook, ClassVisitor next) {
        super(Opcodes.ASM9, next);
        this.hook = hook;
    }

    /**
     * Returns the class file with the hook.
     *
     * @throws StartRefused not exactly one method of the class is the hook's
     */
    static byte[] write(Hook hook, byte[] classFile) {
        ClassReader reader = new ClassReader(classFile);
        ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
        HookWriter hookWriter = new HookWriter(hook, writer);
        reader.accept(hookWriter, 0);
        if (hookWriter.matches != 1) {
            throw new StartRefused(hook.owner().replace('/', '.') + " has " + hookWriter.matches + " methods "
                    + hook.method() + " " + hook.descriptor() + ", not one");
        }
        return writer.toByteArray();
    }

    @Override
    public MethodVisitor visitMethod(
            int access, String name, String descriptor, String signature, String[] exceptions) {
        MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
        if (!name.equals(hook.method()) || !descriptor.equals(hook.descriptor())) {
            return next;
        }
        matches++;
        boolean isStatic = (access & Opcodes.ACC_STATIC) != 0;
        return new MethodVisitor(Opcodes.ASM9, next) {
            @Override
            public void visitCode() {
                super.visitCode();
                writeCall(this, isStatic);
            }
        };
    }

    /** Writes {@code if (handler(this, arguments…)) return;} or {@code if ((r = handler(…)) != null) return r;}. */
    private void writeCall(MethodVisitor code, boolean isStatic) {
        Type stock = Type.getMethodType(hook.descriptor());
        boolean isVoid = stock.getReturnType() == Type.VOID_TYPE;
        String parameters = isStatic ? "(" : "(L" + hook.owner() + ";";
        int local = 0;
        if (!isStatic) {
            code.visitVarInsn(Opcodes.ALOAD, local++);
        }
        for (Type argument : Arrays.asList(stock.getArgumentTypes()).subList(0, hook.passed())) {
            code.visitVarInsn(argument.getOpcode(Opcodes.ILOAD), local);
            local += argument.getSize();
            parameters += argument.getDescriptor();
        }
        String returned = isVoid ? "Z" : stock.getReturnType().getDescriptor();
        code.visitMethodInsn(
                Opcodes.INVOKESTATIC, hook.handler(), hook.method(), parameters + ")" + returned, false);
        Label stockCode = new Label();
        if (isVoid) {
            code.visitJumpInsn(Opcodes.IFEQ, stockCode);
            code.visitInsn(Opcodes.RETURN);
            code.visitLabel(stockCode);
            code.visitFrame(Opcodes.F_SAME, 0, null, 0, null);
            code.visitInsn(Opcodes.NOP); // the stock code may begin with a frame of its own
        } else {
            code.visitInsn(Opcodes.DUP);
            code.visitJumpInsn(Opcodes.IFNULL, stockCode);
            code.visitInsn(Opcodes.ARETURN);
            code.visitLabel(stockCode);
            Object[] stack = {stock.getReturnType().getInternalName()};
            code.visitFrame(Opcodes.F_SAME1, 0, null, 1, stack);
            code.visitInsn(Opcodes.POP);
        }
    }
}
