"""
The adapter to Spark: the data source, and a mirror's jobs. The only package that imports pyspark.

Raises:
    ConfigError: PySpark or pyarrow is not installed: they come with the extra ``spark``.

"""

from importlib.util import find_spec

from ..errors import ConfigError

for _package in ("pyspark", "pyarrow"):
    if find_spec(_package) is None:
        raise ConfigError(
            f"the package {_package} is not installed, and this command runs on Spark. "
            "Install shoal with its extra 'spark': pip install 'shoal[spark]'"
        )
