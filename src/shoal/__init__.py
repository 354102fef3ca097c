"""Mirror Kafka topics by whole RecordBatches, on Spark."""
