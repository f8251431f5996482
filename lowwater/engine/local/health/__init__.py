"""What a run checks of itself and of its data: counts, order, units of time, dead letters."""
