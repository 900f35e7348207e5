"""What is the matter: how far a simulator keeps to the protocol's document, and what keeps this host from working."""
