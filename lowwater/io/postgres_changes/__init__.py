"""Changes of a PostgreSQL table as a replayable source. Only what is used imports psycopg."""
