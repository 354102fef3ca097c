package shoal.agent.start;

/** The broker may not start with this agent; the message says why, and what to do. */
final class StartRefused extends RuntimeException {
    private static final long serialVersionUID = 1L;

    StartRefused(String message) {
        super(message);
    }

    StartRefused(String message, Throwable cause) {
        super(message + ": " + cause, cause);
    }
}
