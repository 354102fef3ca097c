package shoal.agent.append;

import java.util.Optional;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Which record sets are appended in one of the {@link Form}s, from the headers of their batches.
 *
 * <p>Checksums and records are not looked at: the stock code does that, for each batch, before it writes.
 */
public final class Admission {
    private static final Logger LOG = LoggerFactory.getLogger(Admission.class);

    /** The first that may carry every codec. */
    private static final short OLDEST_VERSION = 7;

    private Admission() {}

    /**
     * The hook of {@code ProduceRequest.validateRecords}.
     *
     * @return true where the record set is admitted; false where the stock method has to decide
     * @throws InvalidRecordException its end is cut off: the stock code would drop that in silence
     */
    public static boolean validateRecords(short version, BaseRecords records) {
        MarkedRequest request = MarkedRequest.ofCandidate(records);
        if (request == null) {
            return false;
        }
        MemoryRecords batches = (MemoryRecords) records;
        for (Form form : request.forms(batches)) {
            Optional<String> objection = objection(form, version, batches);
            if (objection.isEmpty()) {
                request.admit(batches, form);
                return true;
            }
            LOG.debug("A record set is not appended in form {}: {}", form, objection.get());
        }
        if (batches.validBytes() < batches.sizeInBytes()) {
            throw new InvalidRecordException("The last batch is cut short");
        }
        return false;
    }

    /** Returns what speaks against appending a record set in a form, if anything does. */
    static Optional<String> objection(Form form, short version, MemoryRecords records) {
        return switch (form) {
            case COMPARED -> objectionToCompared(version, records);
            case PLAIN -> objectionToPlain(version, records);
        };
    }

    /**
     * Returns what speaks against a record set by compare-and-append, if anything does.
     *
     * <p>Nothing does where every batch could be sent alone by an idempotent producer, outside of a transaction, and
     * where each follows the one before it without a gap in their sequences.
     */
    private static Optional<String> objectionToCompared(short version, MemoryRecords records) {
        Optional<String> objection = objectionToAny(version, records);
        RecordBatch before = null;
        for (RecordBatch batch : records.batches()) {
            if (objection.isEmpty() && (!batch.hasProducerId() || batch.producerEpoch() < 0 || batch.baseSequence() < 0)) {
                objection = Optional.of("a batch without producer id, epoch or sequence");
            }
            if (objection.isEmpty() && before != null) {
                objection = objectionBetween(before, batch);
            }
            if (objection.isPresent()) {
                return objection;
            }
            before = batch;
        }
        return objection;
    }

    /**
     * Returns what speaks against a record set in KIP-712's plain form, if anything does.
     *
     * <p>A single batch is left to the stock code, and so is a batch with a producer id: without comparing, the broker
     * could not tell a retry of several from new ones.
     */
    private static Optional<String> objectionToPlain(short version, MemoryRecords records) {
        Optional<String> objection = objectionToAny(version, records);
        int count = 0;
        for (RecordBatch batch : records.batches()) {
            if (objection.isEmpty() && batch.hasProducerId()) {
                objection = Optional.of("a batch with a producer id");
            }
            if (objection.isPresent()) {
                return objection;
            }
            count++;
        }
        return objection.isPresent() || count > 1 ? objection : Optional.of("only one batch");
    }

    /** Nothing speaks against it in any form where a client could send each batch alone, outside of a transaction. */
    private static Optional<String> objectionToAny(short version, MemoryRecords records) {
        if (version < OLDEST_VERSION) {
            return Optional.of("Produce " + version + " is older than " + OLDEST_VERSION);
        }
        int bytes = 0;
        for (RecordBatch batch : records.batches()) {
            Optional<String> objection = objection(batch);
            if (objection.isPresent()) {
                return objection;
            }
            bytes += batch.sizeInBytes();
        }
        if (bytes == 0) {
            return Optional.of("there is no batch");
        }
        return bytes == records.sizeInBytes() ? Optional.empty() : Optional.of("the last batch is cut short");
    }

    private static Optional<String> objection(RecordBatch batch) {
        if (batch.magic() != RecordBatch.MAGIC_VALUE_V2) {
            return Optional.of("a batch of magic " + batch.magic());
        }
        if (batch.baseOffset() != 0) {
            return Optional.of("base offset " + batch.baseOffset() + " is not 0");
        }
        int count = batch.countOrNull();
        if (count <= 0 || batch.lastOffset() != count - 1) {
            return Optional.of(count + " records, but offsets up to " + batch.lastOffset());
        }
        if (batch.isTransactional() || batch.isControlBatch()) {
            return Optional.of("a batch of a transaction");
        }
        return Optional.empty();
    }

    private static Optional<String> objectionBetween(RecordBatch before, RecordBatch batch) {
        if (batch.producerId() != before.producerId() || batch.producerEpoch() != before.producerEpoch()) {
            return Optional.of("batches of two producers");
        }
        int expected = DefaultRecordBatch.incrementSequence(before.lastSequence(), 1);
        if (batch.baseSequence() != expected) {
            return Optional.of("sequence " + batch.baseSequence() + " where " + expected + " follows");
        }
        return Optional.empty();
    }
}
