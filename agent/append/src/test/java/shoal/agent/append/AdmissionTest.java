package shoal.agent.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static shoal.agent.append.Batches.EPOCH;
import static shoal.agent.append.Batches.PRODUCER;
import static shoal.agent.append.Batches.batch;
import static shoal.agent.append.Batches.following;
import static shoal.agent.append.Batches.joined;
import static shoal.agent.append.Batches.records;

import java.nio.ByteBuffer;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.junit.jupiter.api.Test;

class AdmissionTest {
    private static final short VERSION = 12;

    @Test
    void oneBatchOrManyWithoutAGapAreAdmitted() {
        assertAdmitted(batch(0, 3));
        assertAdmitted(following(17, 1, 2, 3));
    }

    @Test
    void sequencesGoOnBehindTheirWrap() {
        assertAdmitted(following(Integer.MAX_VALUE - 2, 3, 3)); // ends at the last sequence
        assertAdmitted(following(Integer.MAX_VALUE - 2, 5, 3)); // crosses it within a batch
    }

    @Test
    void aGapAnOverlapAndARepetitionAreNot() {
        assertObjection("sequence 4 where 3 follows", joined(batch(0, 3), batch(4, 1)));
        assertObjection("sequence 2 where 3 follows", joined(batch(0, 3), batch(2, 1)));
        assertObjection("sequence 0 where 3 follows", joined(batch(0, 3), batch(0, 3)));
    }

    @Test
    void twoProducersAreNot() {
        assertObjection("batches of two producers", joined(batch(0, 1), batch(PRODUCER + 1, EPOCH, 1, 1)));
        assertObjection("batches of two producers", joined(batch(0, 1), batch(PRODUCER, (short) 3, 1, 1)));
    }

    @Test
    void aBatchWithoutAProducerIsNot() {
        MemoryRecords plain = MemoryRecords.withRecords(Compression.NONE, records(1));
        assertObjection("a batch without producer id, epoch or sequence", plain);
    }

    @Test
    void batchesOfTransactionsAreNot() {
        MemoryRecords transactional =
                MemoryRecords.withTransactionalRecords(Compression.NONE, PRODUCER, EPOCH, 1, records(1));
        assertObjection("a batch of a transaction", joined(batch(0, 1), transactional));
        MemoryRecords marker = MemoryRecords.withEndTransactionMarker(
                PRODUCER, EPOCH, new EndTransactionMarker(ControlRecordType.COMMIT, 0));
        assertObjection("a batch of a transaction", marker);
    }

    @Test
    void anotherMagicIsNot() {
        MemoryRecords old = MemoryRecords.withRecords((byte) 1, Compression.NONE, records(1));
        assertObjection("a batch of magic 1", joined(batch(0, 1), old));
    }

    @Test
    void aBaseOffsetIsNot() {
        MemoryRecords second = batch(1, 1);
        second.buffer().putLong(0, 1);
        assertObjection("base offset 1 is not 0", joined(batch(0, 1), second));
    }

    @Test
    void aBatchWithHolesIsNot() {
        MemoryRecords holed = batch(0, 2);
        holed.buffer().putInt(57, 1); // the count of records
        assertObjection("1 records, but offsets up to 1", holed);
    }

    @Test
    void aBatchThatIsCutShortIsNot() {
        ByteBuffer whole = following(0, 1, 1).buffer();
        ByteBuffer cut = whole.slice(0, whole.limit() - 1);
        assertObjection("the last batch is cut short", MemoryRecords.readableRecords(cut));
    }

    @Test
    void nothingIsNot() {
        assertObjection("there is no batch", MemoryRecords.EMPTY);
    }

    @Test
    void anOldVersionIsNot() {
        assertEquals(Optional.of("Produce 6 is older than 7"), Admission.objection(Form.COMPARED, (short) 6, batch(0, 1)));
        assertEquals(Optional.empty(), Admission.objection(Form.COMPARED, (short) 7, batch(0, 1)));
    }

    @Test
    void severalBatchesWithoutAProducerAreAdmittedInThePlainFormOnly() {
        MemoryRecords several = joined(plain(2), plain(1));
        assertEquals(Optional.empty(), Admission.objection(Form.PLAIN, VERSION, several));
        assertObjection("a batch without producer id, epoch or sequence", several);
    }

    @Test
    void thePlainFormLeavesOneBatchAndProducersToTheStockRules() {
        assertEquals(Optional.of("only one batch"), Admission.objection(Form.PLAIN, VERSION, plain(3)));
        Optional<String> producer = Optional.of("a batch with a producer id");
        assertEquals(producer, Admission.objection(Form.PLAIN, VERSION, following(0, 1, 1)));
        assertEquals(producer, Admission.objection(Form.PLAIN, VERSION, joined(plain(1), batch(0, 1))));
    }

    @Test
    void thePlainFormHasTheOtherRulesToo() {
        MemoryRecords several = joined(plain(1), plain(1));
        assertEquals(Optional.of("Produce 6 is older than 7"), Admission.objection(Form.PLAIN, (short) 6, several));
        ByteBuffer cut = several.buffer().slice(0, several.sizeInBytes() - 1);
        assertEquals(
                Optional.of("the last batch is cut short"),
                Admission.objection(Form.PLAIN, VERSION, MemoryRecords.readableRecords(cut)));
        several.buffer().putLong(0, 1);
        assertEquals(Optional.of("base offset 1 is not 0"), Admission.objection(Form.PLAIN, VERSION, several));
    }

    private static MemoryRecords plain(int count) {
        return MemoryRecords.withRecords(Compression.NONE, records(count));
    }

    private static void assertAdmitted(MemoryRecords records) {
        assertEquals(Optional.empty(), Admission.objection(Form.COMPARED, VERSION, records));
    }

    private static void assertObjection(String expected, MemoryRecords records) {
        assertEquals(Optional.of(expected), Admission.objection(Form.COMPARED, VERSION, records));
    }
}
