package shoal.agent.append;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/**
 * What a log has already of a request's batches.
 *
 * <p>The sequence of a batch says at which offset it lands, so the log itself is asked whether it is there: that
 * holds for any number of batches, and also when the broker has forgotten the producer.
 *
 * @param firstOffset where the first batch of the request is, or will be
 * @param count how many batches from the first on the log has
 * @param timestamp the greatest of the last of them; -1 where the log has none
 */
record Duplicates(long firstOffset, int count, long timestamp) {

    /**
     * Compares batches with the log, whose lock is held.
     *
     * @param batches admitted ones, all of one record set
     * @throws OutOfOrderSequenceException neither is the next batch in the log, nor would it land at its end
     * @throws CorruptRecordException the same, but a checksum is wrong: the header may be, too
     */
    static Duplicates find(PartitionLog log, List<? extends RecordBatch> batches) {
        long end = log.logEndOffset();
        long firstOffset = SequenceOffset.nearest(batches.get(0).baseSequence(), end);
        long offset = firstOffset;
        long timestamp = RecordBatch.NO_TIMESTAMP;
        int count = 0;
        while (count < batches.size() && offset != end) {
            RecordBatch batch = batches.get(count);
            Optional<RecordBatch> stored = stored(log, offset, batch);
            if (stored.isEmpty()) {
                throw outOfOrder(log, batch, batches);
            }
            ensureIntact(log, batch);
            timestamp = stored.get().maxTimestamp();
            offset += batch.countOrNull();
            count++;
        }
        ensureUnknown(log, batches.subList(count, batches.size()), batches);
        return new Duplicates(firstOffset, count, timestamp);
    }

    /** Returns the batch that begins at an offset, if it is this one. */
    private static Optional<RecordBatch> stored(PartitionLog log, long offset, RecordBatch batch) {
        if (offset < log.logStartOffset() || offset + batch.countOrNull() > log.logEndOffset()) {
            return Optional.empty();
        }
        try {
            Iterator<? extends RecordBatch> found = log.read(offset).batches().iterator();
            return found.hasNext() ? Optional.of(found.next()).filter(it -> isSame(it, offset, batch)) : Optional.empty();
        } catch (OffsetOutOfRangeException moved) {
            return Optional.empty(); // to tiered storage
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** By what the stock broker compares, and the offset; the payload may have been compressed anew. */
    private static boolean isSame(RecordBatch stored, long offset, RecordBatch batch) {
        return stored.baseOffset() == offset
                && stored.producerId() == batch.producerId()
                && stored.producerEpoch() == batch.producerEpoch()
                && stored.baseSequence() == batch.baseSequence()
                && stored.lastSequence() == batch.lastSequence();
    }

    /**
     * Makes sure that the stock append finds no duplicate among the new batches.
     *
     * <p>It would drop all of them and answer success. A batch with such sequences can only be at another offset: the
     * producer wrote it without comparing. Only the first sequence is compared: if just the last one differs, the stock
     * append finds no duplicate, but refuses the sequence likewise.
     */
    private static void ensureUnknown(
            PartitionLog log, List<? extends RecordBatch> newBatches, List<? extends RecordBatch> all) {
        if (newBatches.isEmpty()) {
            return;
        }
        Optional<ProducerStateEntry> producer = log.producer(newBatches.get(0).producerId());
        for (RecordBatch batch : newBatches) {
            if (producer.filter(it -> wrote(it, batch)).isPresent()) {
                throw outOfOrder(log, batch, all);
            }
        }
    }

    private static boolean wrote(ProducerStateEntry producer, RecordBatch batch) {
        return producer.producerEpoch() == batch.producerEpoch()
                && producer.batchMetadata().stream().anyMatch(it -> it.firstSeq() == batch.baseSequence());
    }

    private static OutOfOrderSequenceException outOfOrder(
            PartitionLog log, RecordBatch batch, List<? extends RecordBatch> all) {
        all.forEach(it -> ensureIntact(log, it));
        return new OutOfOrderSequenceException("Compare-and-append of producer " + batch.producerId() + " in partition "
                + log.topicPartition() + ": sequence " + batch.baseSequence() + ", but the log ends at offset "
                + log.logEndOffset() + " and does not have this batch");
    }

    private static void ensureIntact(PartitionLog log, RecordBatch batch) {
        if (!batch.isValid()) {
            throw new CorruptRecordException("Record is corrupt (stored crc = " + batch.checksum()
                    + ") in topic partition " + log.topicPartition() + ".");
        }
    }
}
