package shoal.agent.append;

/** What a sequence means under compare-and-append: the offset where a batch lands, modulo 2^31. */
final class SequenceOffset {
    private static final long SEQUENCES = 1L << 31;

    private SequenceOffset() {}

    /**
     * Returns the offset that a sequence stands for: of those that it may, the one nearest to the log's end.
     *
     * <p>Below zero where the log is too short for the sequence to lie behind its end.
     */
    static long nearest(int sequence, long logEndOffset) {
        long ahead = (sequence - logEndOffset) & (SEQUENCES - 1);
        return logEndOffset + (ahead < SEQUENCES / 2 ? ahead : ahead - SEQUENCES);
    }
}
