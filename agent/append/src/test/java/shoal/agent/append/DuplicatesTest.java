package shoal.agent.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static shoal.agent.append.Batches.EPOCH;
import static shoal.agent.append.Batches.PRODUCER;
import static shoal.agent.append.Batches.batch;
import static shoal.agent.append.Batches.following;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.junit.jupiter.api.Test;

class DuplicatesTest {
    private static final long SEQUENCES = 1L << 31;
    private static final long TIMESTAMP = 1_600_000_000_000L;

    private final MemoryLog log = new MemoryLog();

    @Test
    void anEmptyLogHasNothing() {
        assertEquals(new Duplicates(0, 0, -1), find(following(0, 3, 3)));
    }

    @Test
    void whatLandsAtTheEndIsNew() {
        log.store(following(0, 3, 3));
        assertEquals(new Duplicates(6, 0, -1), find(following(6, 3, 3)));
    }

    @Test
    void whatTheLogHasIsFoundFromTheFirstBatchOn() {
        log.store(following(0, 3, 2, 4));
        assertEquals(new Duplicates(0, 3, TIMESTAMP + 3), find(following(0, 3, 2, 4)));
        assertEquals(new Duplicates(3, 2, TIMESTAMP + 3), find(following(3, 2, 4, 7)));
    }

    @Test
    void sequencesGoOnAcrossTheirWrap() {
        log.startAt(SEQUENCES - 4);
        log.store(following(Integer.MAX_VALUE - 3, 2, 5));
        assertEquals(new Duplicates(SEQUENCES - 4, 2, TIMESTAMP + 4), find(following(Integer.MAX_VALUE - 3, 2, 5, 1)));
        assertEquals(new Duplicates(SEQUENCES + 3, 0, -1), find(following(3, 1)));
    }

    @Test
    void aGapIsRefused() {
        log.store(following(0, 3));
        assertOutOfOrder(following(4, 1));
        assertOutOfOrder(following(Integer.MAX_VALUE, 1));
    }

    @Test
    void anotherCutIsRefused() {
        log.store(following(0, 3, 3));
        assertOutOfOrder(following(0, 6));
        assertOutOfOrder(following(0, 2, 2, 2));
        assertOutOfOrder(following(4, 3)); // reaches over the end
    }

    @Test
    void anotherProducersBatchesAreRefused() {
        log.store(following(0, 3));
        assertOutOfOrder(batch(PRODUCER + 1, EPOCH, 0, 3));
        assertOutOfOrder(batch(PRODUCER, (short) (EPOCH + 1), 0, 3));
    }

    @Test
    void whatRetentionDeletedIsNotFound() {
        log.store(following(0, 3, 3));
        log.deleteBefore(3);
        assertOutOfOrder(following(0, 3, 3));
        assertEquals(new Duplicates(3, 1, TIMESTAMP + 2), find(following(3, 3)));
    }

    @Test
    void sequencesThatTheProducerWroteElsewhereAreRefused() {
        log.store(following(6, 3)); // at 0
        log.store(following(9, 3)); // at 3
        log.remember(following(6, 3));
        assertOutOfOrder(following(6, 3));
        assertOutOfOrder(following(6, 3, 3));
        assertOutOfOrder(following(6, 2, 2)); // splits it otherwise
    }

    @Test
    void sequencesOfAnotherEpochAreNew() {
        log.store(following(6, 3, 3));
        log.remember(following(6, 3));
        assertEquals(new Duplicates(6, 0, -1), find(batch(PRODUCER, (short) (EPOCH + 1), 6, 3)));
    }

    @Test
    void aDamagedBatchIsSaidToBeDamaged() {
        log.store(following(0, 3, 3));
        MemoryRecords duplicate = following(0, 3, 3);
        damageLastByte(duplicate);
        assertThrows(CorruptRecordException.class, () -> find(duplicate));
        MemoryRecords gap = following(9, 3);
        damageLastByte(gap);
        assertThrows(CorruptRecordException.class, () -> find(gap));
    }

    private Duplicates find(MemoryRecords records) {
        List<RecordBatch> batches = new ArrayList<>();
        records.batches().forEach(batches::add);
        return Duplicates.find(log, batches);
    }

    private void assertOutOfOrder(MemoryRecords records) {
        assertThrows(OutOfOrderSequenceException.class, () -> find(records));
    }

    private static void damageLastByte(MemoryRecords records) {
        int last = records.sizeInBytes() - 1;
        records.buffer().put(last, (byte) (records.buffer().get(last) ^ 1));
    }
}
