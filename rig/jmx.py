"""A broker's own metrics, read by Kafka's JmxTool."""

import re
import subprocess

from rig.jars import tool_command

__all__ = ["JmxFailed", "jmx_options", "read_count"]


class JmxFailed(Exception):
    """JmxTool ended with an error, or found no such metric; the text has its output."""


def jmx_options(port: int) -> tuple[str, ...]:
    """Return the JVM options that let a broker serve its metrics at this port of the loopback."""
    prefix = "-Dcom.sun.management.jmxremote"
    return (
        f"{prefix}.port={port}",
        f"{prefix}.rmi.port={port}",
        f"{prefix}.host=127.0.0.1",
        f"{prefix}.authenticate=false",
        f"{prefix}.ssl=false",
        "-Djava.rmi.server.hostname=127.0.0.1",
    )


def read_count(port: int, metric: str) -> int:
    """Return the count of a meter since the broker's start.

    Args:
        port: The port that `jmx_options` was given.
        metric: An MBean: ``kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec``.

    Raises:
        JmxFailed: The broker does not answer, or has no such metric.
    """
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    asked = ["--object-name", metric, "--attributes", "Count", "--one-time", "--report-format", "properties"]
    result = subprocess.run(
        [*tool_command("org.apache.kafka.tools.JmxTool"), "--jmx-url", url, *asked],
        capture_output=True,
        text=True,
        check=False,
    )
    count = re.search(r":Count=(\d+)", result.stdout)
    if result.returncode != 0 or count is None:
        raise JmxFailed(f"{metric} at port {port}:\n{result.stdout}\n{result.stderr}")
    return int(count[1])
