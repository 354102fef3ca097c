/**
 * What the agent does with a marked Produce request: bulk append with compare-and-append, or in KIP-712's plain form.
 *
 * <p>A request takes this way through the broker, on one thread:
 *
 * <ol>
 *   <li>{@code KafkaApis.handleProduceRequest}: is it from a client that the options allow, and which of its
 *       record sets are for topics that they allow? {@link shoal.agent.append.MarkedRequest} remembers them.
 *   <li>{@code ProduceRequest.validateRecords}: {@link shoal.agent.append.Admission} looks at the headers of all
 *       batches of a record set; where it objects, the stock rules apply, by which two batches are refused.
 *   <li>{@code UnifiedLog.appendAsLeader}: {@link shoal.agent.append.CompareAndAppend} takes the log's lock, leaves
 *       out what the log has already, and hands the rest to the stock append, in one piece. In the plain form all of
 *       it is handed on.
 *   <li>{@code LogValidator.validateMessagesAndAssignOffsets}, within that append:
 *       {@link shoal.agent.append.SliceValidation} runs the stock validator on each batch alone.
 * </ol>
 *
 * <p>Each hook stands at the entry of a stock method and either does its work and returns, or lets the stock code
 * run. Requests that are not marked never leave the stock code.
 */
package shoal.agent.append;
