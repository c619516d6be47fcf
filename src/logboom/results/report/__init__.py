"""What a report counts, says and looks like."""
