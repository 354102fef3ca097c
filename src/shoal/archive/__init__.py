"""
An archive: a directory, in a file system or an object store, that holds the logs of partitions.

``docs/archive.md`` has the layout. Nothing in it is ever changed or deleted by shoal: each object is written
once and has a name of its own. In the order of use:

- :mod:`.names`: the paths, and which names of a cluster or of a store may become part of one.
- :mod:`.urls`: which directories there are, and what their URLs may have.
- :mod:`.credentials`: the secrets of a store.
- :mod:`.files`: files that are read, local ones or those of a store.
- :mod:`.object_store`: a directory of an object store, through ``pyarrow.fs``.
- :mod:`.store`: a directory of the local file system, or of such a store.
- :mod:`.aborted`: the index of aborted transactions, in Kafka's format.
- :mod:`.segment`: batches that are gathered on the local disk, until they become an object.
- :mod:`.description`: the files of JSON.
- :mod:`.objects`: the objects of a partition.
- :mod:`.directory`: what an archive has of topics.
- :mod:`.groups`: the committed offsets of consumer groups.
- :mod:`.runs`: the manifests of runs.
- :mod:`.reading`: the batches of a partition, from its objects.
- :mod:`.group_answers`: the answers of the broker below about groups.
- :mod:`.broker`: answers Kafka's requests from an archive, so that whatever reads a cluster reads an archive.

Nothing here knows Spark or connects to a cluster.
"""
