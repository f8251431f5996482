"""Sources and sinks: where records come from and where panes go."""
