"""What the pipeline has made of logs: where it is, what it covers, and how it is read."""
