package shoal.agent.start;

import java.lang.instrument.Instrumentation;
import shoal.agent.append.MarkedRequest;

/**
 * The agent's beginning: {@code -javaagent:shoal-agent.jar} or {@code -javaagent:shoal-agent.jar=OPTIONS_FILE}.
 *
 * <p>Either all hooks are in place when the broker's {@code main} runs, or it does not run.
 */
public final class Agent {

    /** How a broker ends that the agent does not let start: EX_CONFIG of sysexits.h. */
    static final int REFUSED = 78;

    private Agent() {}

    /**
     * Called by the JVM before {@code main}.
     *
     * @param optionsFile see {@link Options}; null for the defaults
     */
    public static void premain(String optionsFile, Instrumentation instrumentation) {
        try {
            KafkaOnClassPath kafka = KafkaOnClassPath.find();
            SupportedVersion version = SupportedVersion.of(kafka.version(), kafka.commit());
            HookInstaller.install(version, kafka, instrumentation);
            // Only now: it loads classes that the installer adapts.
            Options options = Options.read(optionsFile);
            MarkedRequest.mark(options.markedClients());
            System.err.println("shoal-agent: Kafka " + kafka.version() + " takes several batches of a partition in a"
                    + " Produce request from " + options);
        } catch (StartRefused refused) {
            halt(refused.getMessage());
        } catch (Throwable unexpected) {
            unexpected.printStackTrace();
            halt("the agent failed: " + unexpected);
        }
    }

    /** Ends the JVM at once: exit hooks are for a broker that ran. */
    private static void halt(String reason) {
        System.err.println("shoal-agent: the broker is not started, and nothing was changed: " + reason);
        System.err.flush();
        Runtime.getRuntime().halt(REFUSED);
    }
}
