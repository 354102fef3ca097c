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
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
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
        assertTrue(clients.includeTopic("orders"));
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
        assertTrue(clients.includeTopic("copy.orders"));
        assertFalse(clients.includeTopic("a.copy.orders"));
        assertFalse(clients.includeTopic(""));
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
        assertThrows(StartRefused.class, () -> options("topics=("));
    }

    @Test
    void theFileIsReadAndHasToBeThere(@TempDir Path directory) throws IOException {
        Path file = Files.writeString(directory.resolve("agent.properties"), "topics=orders\n");
        assertFalse(Options.read(file.toString()).markedClients().includeTopic("clicks"));
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

    private static void assertRefused(String expected, String text) {
        assertEquals(expected, assertThrows(StartRefused.class, () -> options(text)).getMessage());
    }
}
