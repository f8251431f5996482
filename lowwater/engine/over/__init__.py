"""Values over the rows before each row of a key: the rows of a time, or a number of rows."""
