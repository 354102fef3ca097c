package shoal.agent.append;

import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

/**
 * Whose requests may have several batches of a partition, and for which topics.
 *
 * @param clientIdPrefix what the client id of one who asks for it begins with
 * @param principals names such as {@code User:mirror}; {@code User:ANONYMOUS} is who did not authenticate
 * @param topics has to match a topic's whole name
 */
public record MarkedClients(String clientIdPrefix, Set<String> principals, Pattern topics) {

    /** Says whether this client asks for it, and may have it. */
    public boolean include(String clientId, KafkaPrincipal principal) {
        return clientId != null && clientId.startsWith(clientIdPrefix) && principals.contains(principal.toString());
    }

    /** Says whether a topic is one of those that may be written so. */
    public boolean includeTopic(String topic) {
        return topics.matcher(topic).matches();
    }
}
