"""Topics of Kafka as replayable sources. Only what is used imports the client library."""
