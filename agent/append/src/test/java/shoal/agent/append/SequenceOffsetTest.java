package shoal.agent.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class SequenceOffsetTest {
    private static final long SEQUENCES = 1L << 31;

    @Test
    void aSequenceIsItsOffsetInAShortLog() {
        assertEquals(7, SequenceOffset.nearest(7, 0));
        assertEquals(7, SequenceOffset.nearest(7, 7));
        assertEquals(7, SequenceOffset.nearest(7, 1000));
    }

    @Test
    void sequencesStartAnewEveryTwoToThe31st() {
        assertEquals(SEQUENCES, SequenceOffset.nearest(0, SEQUENCES));
        assertEquals(5 * SEQUENCES + 3, SequenceOffset.nearest(3, 5 * SEQUENCES + 3));
    }

    @Test
    void thoseBehindTheWrapAndBeforeItAreNearEachOther() {
        assertEquals(SEQUENCES - 1, SequenceOffset.nearest(Integer.MAX_VALUE, SEQUENCES + 10));
        assertEquals(SEQUENCES + 10, SequenceOffset.nearest(10, SEQUENCES - 1));
    }

    @Test
    void aSequenceThatNoOffsetBehindTheEndHasIsBelowZeroOrAhead() {
        assertTrue(SequenceOffset.nearest(Integer.MAX_VALUE, 10) < 0);
        assertEquals(11, SequenceOffset.nearest(11, 10));
    }
}
