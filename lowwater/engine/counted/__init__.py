"""Windows of a number of records of a key, by arrival."""
