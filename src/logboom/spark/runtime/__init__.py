"""What Spark needs to run: Java, Python, a session, tidy workers."""
