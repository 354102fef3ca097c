package shoal.agent.append;

/** How several batches of a partition may stand in one request. */
public enum Form {
    /** Batches of one producer, whose sequences are the offsets where they must land: a retry is exact. */
    COMPARED,

    /** KIP-712's own: batches without a producer id. Nothing is compared: a retry is written again. */
    PLAIN
}
