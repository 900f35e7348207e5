"""What the bridge costs, measured beside what the datagrams alone cost in the same run."""
