"""What a node knows of itself: counts, samples, lag, incidents, checkup."""
