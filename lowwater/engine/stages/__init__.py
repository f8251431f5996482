"""What a stage does: its operator, and what hosts of it need to know."""
