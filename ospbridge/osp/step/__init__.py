"""A client's step, exactly once: what is sent, what comes, and what silence means."""
