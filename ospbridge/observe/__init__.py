"""What a running ospbridge lets one see: logs, traces, and where its sockets and leases are."""
