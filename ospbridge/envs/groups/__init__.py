"""Environments of many agents: lock-step groups, fleets of them, and what vector environments make of these."""
