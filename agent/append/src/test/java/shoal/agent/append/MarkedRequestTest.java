package shoal.agent.append;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shoal.agent.append.Batches.following;

import java.net.InetAddress;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class MarkedRequestTest {
    private static final MarkedClients CLIENTS =
            new MarkedClients("marked", Set.of("User:ANONYMOUS"), Pattern.compile(".*"), null);
    private static final short VERSION = 11;

    private final MemoryRecords candidate = following(0, 1, 1);
    private final MemoryRecords other = following(0, 1, 1);

    @BeforeEach
    void allow() {
        MarkedRequest.mark(CLIENTS);
    }

    @AfterEach
    void allowNobody() {
        MarkedRequest.mark(null);
    }

    @Test
    void onlyTheRequestsOfAllowedClientsAreMarked() {
        assertSame(CLIENTS, MarkedRequest.marking(context("marked-1")));
        assertNull(MarkedRequest.marking(context("other")));
        MarkedRequest.mark(null);
        assertNull(MarkedRequest.marking(context("marked-1")));
    }

    @Test
    void theStockMethodIsNotMarkedAnewWhenItIsCalledAgain() {
        handle(() -> assertNull(MarkedRequest.marking(context("marked-1"))));
        assertNotNull(MarkedRequest.marking(context("marked-1")));
    }

    @Test
    void onlyTheCandidateItselfIsAdmittedAndAppendedOnce() {
        handle(() -> {
            assertFalse(Admission.validateRecords(VERSION, other)); // equal, but another
            assertNull(MarkedRequest.takeAdmitted(other));
            assertNull(MarkedRequest.takeAdmitted(candidate)); // not looked at yet
            assertTrue(Admission.validateRecords(VERSION, candidate));
            assertSame(Form.COMPARED, MarkedRequest.takeAdmitted(candidate));
            assertNull(MarkedRequest.takeAdmitted(candidate));
        });
    }

    @Test
    void nothingIsMarkedBehindTheRequestOrOnOtherThreads() {
        handle(() -> {
            assertTrue(Admission.validateRecords(VERSION, candidate));
            assertNull(CompletableFuture.supplyAsync(() -> MarkedRequest.takeAdmitted(candidate))
                    .join());
        });
        assertFalse(Admission.validateRecords(VERSION, candidate));
        assertNull(MarkedRequest.takeAdmitted(candidate));
    }

    @Test
    void aRequestThatFailsLeavesNothingBehind() {
        RuntimeException failure = new IllegalStateException();
        Runnable fails = () -> {
            assertTrue(Admission.validateRecords(VERSION, candidate));
            throw failure;
        };
        assertSame(failure, assertThrows(IllegalStateException.class, () -> handle(fails)));
        assertNull(MarkedRequest.takeAdmitted(candidate));
        assertNotNull(MarkedRequest.marking(context("marked-1")));
    }

    @Test
    void aRecordSetThatIsNotAdmittedIsLeftToTheStockMethodUnlessItsEndIsCutOff() {
        assertFalse(validated(Batches.joined(following(0, 1), following(5, 1))));
        MemoryRecords whole = following(0, 1, 1);
        MemoryRecords cut = MemoryRecords.readableRecords(whole.buffer().slice(0, whole.sizeInBytes() - 1));
        assertThrows(InvalidRecordException.class, () -> validated(cut));
    }

    @Test
    void aValidationIsTakenOnce() {
        handle(() -> {
            assertNull(MarkedRequest.takeValidation());
            SliceValidation validation = new SliceValidation(new MemoryLog(), candidate);
            MarkedRequest.leave(validation);
            assertSame(validation, MarkedRequest.takeValidation());
            assertNull(MarkedRequest.takeValidation());
        });
        assertNull(MarkedRequest.takeValidation());
    }

    private void handle(Runnable stock) {
        Map<BaseRecords, Set<Form>> candidates = MarkedRequest.candidates();
        candidates.put(candidate, Set.of(Form.COMPARED));
        MarkedRequest.handle(context("marked-1"), candidates, stock);
    }

    private static boolean validated(MemoryRecords records) {
        Map<BaseRecords, Set<Form>> candidates = MarkedRequest.candidates();
        candidates.put(records, Set.of(Form.COMPARED));
        boolean[] admitted = new boolean[1];
        MarkedRequest.handle(
                context("marked-1"), candidates, () -> admitted[0] = Admission.validateRecords(VERSION, records));
        return admitted[0];
    }

    private static RequestContext context(String clientId) {
        return new RequestContext(
                new RequestHeader(ApiKeys.PRODUCE, VERSION, clientId, 0),
                "connection",
                InetAddress.getLoopbackAddress(),
                KafkaPrincipal.ANONYMOUS,
                ListenerName.forSecurityProtocol(SecurityProtocol.PLAINTEXT),
                SecurityProtocol.PLAINTEXT,
                ClientInformation.EMPTY,
                false);
    }
}
