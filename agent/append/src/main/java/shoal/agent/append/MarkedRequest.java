package shoal.agent.append;

import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.requests.RequestContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The Produce request of a marked client that this thread is handling.
 *
 * <p>Record sets are known by identity: whatever else the thread appends meanwhile is not one of them.
 */
public final class MarkedRequest {
    private static final Logger LOG = LoggerFactory.getLogger(MarkedRequest.class);

    /** So many clients are named in the log, one line each; a name that changes for ever must not fill memory. */
    private static final int MOST_NAMED_CLIENTS = 1000;

    private static final Set<String> NAMED_CLIENTS = ConcurrentHashMap.newKeySet();
    private static final ThreadLocal<MarkedRequest> CURRENT = new ThreadLocal<>();
    private static volatile MarkedClients clients;

    private final Map<BaseRecords, Set<Form>> candidates;
    private final Map<BaseRecords, Form> admitted = new IdentityHashMap<>();
    private SliceValidation validation;

    private MarkedRequest(Map<BaseRecords, Set<Form>> candidates) {
        this.candidates = candidates;
    }

    /** Sets whose requests are marked from now on; until then nobody's are. */
    public static void mark(MarkedClients allowed) {
        clients = allowed;
    }

    /** Returns an empty map of record sets to the forms they may have, in which two with the same bytes are two. */
    public static Map<BaseRecords, Set<Form>> candidates() {
        return new IdentityHashMap<>();
    }

    /**
     * Returns whose requests are marked, if this one is; null for everybody else's, and within {@link #handle}.
     *
     * <p>The one question that is asked of every Produce request of every client.
     */
    public static MarkedClients marking(RequestContext context) {
        MarkedClients allowed = clients;
        boolean isMarked = allowed != null
                && allowed.include(context.header.clientId(), context.principal)
                && CURRENT.get() == null;
        return isMarked ? allowed : null;
    }

    /**
     * Runs the stock handling of a marked request.
     *
     * @param context where it comes from
     * @param candidates its record sets for topics that may be written so, with the forms that each may have
     * @param stock the stock method, called again
     */
    public static void handle(RequestContext context, Map<BaseRecords, Set<Form>> candidates, Runnable stock) {
        name(context);
        CURRENT.set(new MarkedRequest(candidates));
        try {
            stock.run();
        } finally {
            CURRENT.remove();
        }
    }

    private static void name(RequestContext context) {
        String client = context.header.clientId() + " (" + context.principal + ")";
        if (NAMED_CLIENTS.size() < MOST_NAMED_CLIENTS && NAMED_CLIENTS.add(client)) {
            LOG.info("Client {} may send several batches of a partition in a request", client);
        }
    }

    /** Returns the request of this thread if the record set is one of its candidates, else null. */
    static MarkedRequest ofCandidate(BaseRecords records) {
        MarkedRequest current = CURRENT.get();
        boolean isCandidate = current != null && records instanceof MemoryRecords && current.candidates.containsKey(records);
        return isCandidate ? current : null;
    }

    /** Returns the forms that one of the candidates may have. */
    Set<Form> forms(MemoryRecords records) {
        return candidates.get(records);
    }

    /** From now on this record set is appended in this form. */
    void admit(MemoryRecords records, Form form) {
        admitted.put(records, form);
    }

    /** Returns the form in which a record set was admitted, once: the stock append that follows is let through. */
    public static Form takeAdmitted(MemoryRecords records) {
        MarkedRequest current = CURRENT.get();
        return current == null ? null : current.admitted.remove(records);
    }

    /** Leaves a validation for the one stock append that follows on this thread. */
    static void leave(SliceValidation validation) {
        CURRENT.get().validation = validation;
    }

    /** Returns the validation that was left, once; null where there is none. */
    static SliceValidation takeValidation() {
        MarkedRequest current = CURRENT.get();
        if (current == null) {
            return null;
        }
        SliceValidation left = current.validation;
        current.validation = null;
        return left;
    }
}
