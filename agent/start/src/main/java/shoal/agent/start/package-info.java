/**
 * How the agent starts: options, the guard that lets it into known Kafka versions only, and the hooks.
 *
 * <p>Nothing here knows Kafka's classes but by name, so that the guard can look at them before they are loaded.
 */
package shoal.agent.start;
