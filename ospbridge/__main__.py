"""`python -m ospbridge`: the same as the `ospbridge` command."""

from __future__ import annotations

from ospbridge.cli import main

if __name__ == "__main__":
    main()
