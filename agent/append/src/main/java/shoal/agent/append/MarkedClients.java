package shoal.agent.append;

import java.util.EnumSet;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

/**
 * Which clients may send several batches of a partition in a request, for which topics, and in which form.
 *
 * @param clientIdPrefix the client ids of clients that use compare-and-append begin with it
 * @param principals names such as {@code User:mirror}; {@code User:ANONYMOUS} for clients that did not authenticate
 * @param topics has to match a topic's whole name, for compare-and-append
 * @param plainTopics likewise for KIP-712's plain form, which takes any client id; null for no topic
 */
public record MarkedClients(String clientIdPrefix, Set<String> principals, Pattern topics, Pattern plainTopics) {

    /** Returns whether any topic may take several batches from this client. */
    public boolean include(String clientId, KafkaPrincipal principal) {
        return (isMarked(clientId) || plainTopics != null) && principals.contains(principal.toString());
    }

    /** Returns the forms that a topic takes from a client of {@link #include}, in the order in which they are tried. */
    public Set<Form> forms(String clientId, String topic) {
        Set<Form> forms = EnumSet.noneOf(Form.class);
        if (isMarked(clientId) && topics.matcher(topic).matches()) {
            forms.add(Form.COMPARED);
        }
        if (plainTopics != null && plainTopics.matcher(topic).matches()) {
            forms.add(Form.PLAIN);
        }
        return forms;
    }

    private boolean isMarked(String clientId) {
        return clientId != null && clientId.startsWith(clientIdPrefix);
    }
}
