"""One turn of a fetcher: a request for partitions, and its response."""

from shoal.client.fetch import Fetcher, FetchFrom
from shoal.error_codes import ErrorCode
from shoal.protocol.fetch import FetchedPartition
from shoal.topic_partition import TopicPartition

__all__ = ["turn"]


def turn(fetcher: Fetcher, *wanted: FetchFrom) -> dict[TopicPartition, FetchedPartition]:
    """Ask for partitions, and return the parts of the answer."""
    for each in wanted:
        fetcher.ask(each)
    assert fetcher.send()
    response = fetcher.receive()
    assert response.error_code == ErrorCode.NONE
    return {TopicPartition(each.topic, each.partition): each for each in response.partitions}
