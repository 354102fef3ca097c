package shoal.agent.append;

import java.util.Map;
import java.util.Set;
import kafka.network.RequestChannel;
import kafka.server.KafkaApis;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** The handlers of {@code KafkaApis} and {@code UnifiedLog}, called with the first arguments of the stock method. */
public final class Hooks {

    private Hooks() {}

    /** Handles a request of {@code KafkaApis}; returns false if the stock method has to run. */
    public static boolean handleProduceRequest(
            KafkaApis apis, RequestChannel.Request request, RequestLocal requestLocal) {
        MarkedClients clients = MarkedRequest.marking(request.context());
        if (clients == null) {
            return false;
        }
        ProduceRequest produce = StockCalls.body(request);
        if (produce.transactionalId() != null) {
            return false;
        }
        String clientId = request.context().header.clientId();
        Map<BaseRecords, Set<Form>> candidates = MarkedRequest.candidates();
        for (TopicProduceData topic : produce.data().topicData()) {
            Set<Form> forms = clients.forms(clientId, name(apis, topic));
            if (!forms.isEmpty()) {
                topic.partitionData().forEach(partition -> candidates.put(partition.records(), forms));
            }
        }
        if (candidates.isEmpty()) {
            return false;
        }
        MarkedRequest.handle(
                request.context(), candidates, () -> apis.handleProduceRequest(request, requestLocal));
        return true;
    }

    /** Returns a topic's name; from version 13 on a request has its id instead. */
    private static String name(KafkaApis apis, TopicProduceData topic) {
        return topic.topicId().equals(Uuid.ZERO_UUID)
                ? topic.name()
                : apis.metadataCache().getTopicName(topic.topicId()).orElse("");
    }

    /** Appends to a {@code UnifiedLog}; returns null if the stock method has to run. */
    public static LogAppendInfo appendAsLeader(
            UnifiedLog log,
            MemoryRecords records,
            int leaderEpoch,
            AppendOrigin origin,
            RequestLocal requestLocal) {
        Form form = MarkedRequest.takeAdmitted(records);
        if (form == null) {
            return null;
        }
        return AdmittedAppend.append(form, new LeaderLog(log, leaderEpoch, origin, requestLocal), records);
    }
}
