package shoal.agent.start;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import shoal.agent.append.Form;
import shoal.agent.append.MarkedClients;

class OptionsTest {
    private static final KafkaPrincipal ALICE = new KafkaPrincipal("User", "alice");
    private static final KafkaPrincipal MIRROR = new KafkaPrincipal("User", "CN=mirror,OU=a");

    @Test
    void byDefaultAnonymousClientsWithShoalsPrefixAreMarkedForAllTopics() {
        MarkedClients clients = Options.read(null).markedClients();
        assertTrue(clients.include("shoal-multi-batch.mirror", KafkaPrincipal.ANONYMOUS));
        assertFalse(clients.include("shoal", KafkaPrincipal.ANONYMOUS));
        assertFalse(clients.include(null, KafkaPrincipal.ANONYMOUS));
        assertEquals(Set.of(Form.COMPARED), clients.forms("shoal-multi-batch.mirror", "orders"));
    }

    @Test
    void whoAuthenticatedHasToBeNamed() {
        assertFalse(Options.read(null).markedClients().include("shoal-multi-batch", ALICE));
        MarkedClients clients = options("principals=User:alice; User:CN=mirror,OU=a").markedClients();
        assertTrue(clients.include("shoal-multi-batch", ALICE));
        assertTrue(clients.include("shoal-multi-batch", MIRROR));
        assertFalse(clients.include("shoal-multi-batch", KafkaPrincipal.ANONYMOUS));
    }

    @Test
    void aPatternIsForWholeNamesOfTopics() {
        MarkedClients clients = options("topics=copy\\\\..*").markedClients();
        assertEquals(Set.of(Form.COMPARED), clients.forms("shoal-multi-batch", "copy.orders"));
        assertEquals(Set.of(), clients.forms("shoal-multi-batch", "a.copy.orders"));
        assertEquals(Set.of(), clients.forms("shoal-multi-batch", ""));
    }

    @Test
    void plainTopicsTakeAnyClientIdOfThePrincipals() {
        MarkedClients clients = options("plain.topics=plain\\\\..*").markedClients();
        assertTrue(clients.include("kip-712", KafkaPrincipal.ANONYMOUS));
        assertTrue(clients.include(null, KafkaPrincipal.ANONYMOUS));
        assertFalse(clients.include("kip-712", ALICE));
        assertEquals(Set.of(Form.PLAIN), clients.forms("kip-712", "plain.orders"));
        assertEquals(Set.of(), clients.forms("kip-712", "orders"));
        assertEquals(Set.of(Form.COMPARED, Form.PLAIN), clients.forms("shoal-multi-batch", "plain.orders"));
    }

    @Test
    void thePrefixCanBeAnother() {
        MarkedClients clients = options("client.id.prefix=mirror-").markedClients();
        assertTrue(clients.include("mirror-1", KafkaPrincipal.ANONYMOUS));
        assertFalse(clients.include("shoal-multi-batch", KafkaPrincipal.ANONYMOUS));
    }

    @Test
    void whatIsNotUnderstoodIsRefused() {
        assertRefused("there is no option principal", "principal=User:alice");
        assertRefused("an empty client.id.prefix would mark every client", "client.id.prefix=");
        assertRefused("principals: alice is not of the form User:name", "principals=alice");
        assertRefused("principals names nobody", "principals=");
        assertNoPattern("topics");
        assertNoPattern("plain.topics");
    }

    @Test
    void theFileIsReadAndHasToBeThere(@TempDir Path directory) throws IOException {
        Path file = Files.writeString(directory.resolve("agent.properties"), "topics=orders\n");
        assertEquals(Set.of(), Options.read(file.toString()).markedClients().forms("shoal-multi-batch", "clicks"));
        String missing = directory.resolve("missing").toString();
        assertThrows(StartRefused.class, () -> Options.read(missing));
    }

    private static Options options(String text) {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(text));
        } catch (IOException error) {
            throw new AssertionError(error);
        }
        return Options.of(properties);
    }

    private static void assertNoPattern(String option) {
        StartRefused refused = assertThrows(StartRefused.class, () -> options(option + "=("));
        assertTrue(refused.getMessage().startsWith(option + " is no regular expression"), refused.getMessage());
    }

    private static void assertRefused(String expected, String text) {
        assertEquals(expected, assertThrows(StartRefused.class, () -> options(text)).getMessage());
    }
}
