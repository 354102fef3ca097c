package shoal.agent.append;

import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.storage.internals.log.LogAppendInfo;

/** Appends an admitted record set in its form. */
final class AdmittedAppend {

    private AdmittedAppend() {}

    /**
     * Appends all batches of a record set or none.
     *
     * @return from the first batch of the request to the last, wherever they were written
     */
    static LogAppendInfo append(Form form, PartitionLog log, MemoryRecords records) {
        return switch (form) {
            case COMPARED -> CompareAndAppend.append(log, records);
            case PLAIN -> SliceValidation.append(log, records);
        };
    }
}
