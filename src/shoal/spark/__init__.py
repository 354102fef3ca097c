"""The adapter to Spark: the data source, and a mirror's jobs. The only package that imports pyspark."""
