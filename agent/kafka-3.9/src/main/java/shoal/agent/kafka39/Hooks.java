package shoal.agent.kafka39;

import java.util.Map;
import java.util.Set;
import kafka.log.UnifiedLog;
import kafka.network.RequestChannel;
import kafka.server.KafkaApis;
import kafka.server.RequestLocal;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.reflect.ClassTag$;
import shoal.agent.append.AdmittedAppend;
import shoal.agent.append.Form;
import shoal.agent.append.MarkedClients;
import shoal.agent.append.MarkedRequest;

/** The hooks of Kafka 3.9.x; each is called with what the stock method of its name was called with. */
public final class Hooks {

    private Hooks() {}

    /** Of {@code KafkaApis}; true where the request was handled. */
    public static boolean handleProduceRequest(
            KafkaApis apis, RequestChannel.Request request, RequestLocal requestLocal) {
        MarkedClients clients = MarkedRequest.marking(request.context());
        if (clients == null) {
            return false;
        }
        ProduceRequest produce = request.body(ClassTag$.MODULE$.apply(ProduceRequest.class));
        if (produce.transactionalId() != null) {
            return false;
        }
        String clientId = request.context().header.clientId();
        Map<BaseRecords, Set<Form>> candidates = MarkedRequest.candidates();
        for (TopicProduceData topic : produce.data().topicData()) {
            Set<Form> forms = clients.forms(clientId, topic.name());
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

    /** Of {@code UnifiedLog}; null where the stock method has to run. */
    public static LogAppendInfo appendAsLeader(
            UnifiedLog log,
            MemoryRecords records,
            int leaderEpoch,
            AppendOrigin origin,
            MetadataVersion interBrokerProtocolVersion,
            RequestLocal requestLocal,
            VerificationGuard verificationGuard) {
        Form form = MarkedRequest.takeAdmitted(records);
        if (form == null) {
            return null;
        }
        LeaderLog appended = new LeaderLog(
                log, leaderEpoch, origin, interBrokerProtocolVersion, requestLocal, verificationGuard);
        return AdmittedAppend.append(form, appended, records);
    }
}
