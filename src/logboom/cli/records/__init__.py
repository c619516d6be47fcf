"""Records on their way in and out: what `logboom write` makes them of, and where `logboom read` takes them."""
