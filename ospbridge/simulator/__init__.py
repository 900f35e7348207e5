"""A real OSP server of our own: worlds behind the server machine, on UDP, with seeded faults and a ledger."""
