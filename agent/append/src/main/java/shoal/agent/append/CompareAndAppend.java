package shoal.agent.append;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.storage.internals.log.LogAppendInfo;

/** Appends the batches of an admitted record set that the log does not have yet, all of them or none. */
final class CompareAndAppend {

    private CompareAndAppend() {}

    /**
     * Appends, or finds that it was done before.
     *
     * @param records admitted ones
     * @return from the first batch of the request to the last, wherever they were written
     * @throws org.apache.kafka.common.errors.OutOfOrderSequenceException the log does not end where the first new
     *     batch says that it lands; nothing is written then, nor where the stock append throws
     */
    static LogAppendInfo append(PartitionLog log, MemoryRecords records) {
        List<MutableRecordBatch> batches = new ArrayList<>();
        records.batches().forEach(batches::add);
        // The stock append takes the same lock again.
        synchronized (log.lock()) {
            Duplicates duplicates = Duplicates.find(log, batches);
            if (duplicates.count() == batches.size()) {
                long lastOffset = duplicates.firstOffset() + count(batches) - 1;
                return log.alreadyAppended(duplicates.firstOffset(), lastOffset, duplicates.timestamp());
            }
            LogAppendInfo appended = append(log, records, batches, duplicates.count());
            appended.setFirstOffset(duplicates.firstOffset());
            return appended;
        }
    }

    private static LogAppendInfo append(
            PartitionLog log, MemoryRecords records, List<MutableRecordBatch> batches, int duplicates) {
        int position = sizeInBytes(batches.subList(0, duplicates));
        return SliceValidation.append(
                log, SliceValidation.slice(records, position, records.sizeInBytes() - position));
    }

    private static int sizeInBytes(List<MutableRecordBatch> batches) {
        return batches.stream().mapToInt(MutableRecordBatch::sizeInBytes).sum();
    }

    private static long count(List<MutableRecordBatch> batches) {
        return batches.stream().mapToLong(MutableRecordBatch::countOrNull).sum();
    }
}
