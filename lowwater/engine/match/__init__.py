"""Row patterns of SQL:2016 over streams: patterns, their programs, and the search for matches."""
