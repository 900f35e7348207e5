"""ospbridge: robot simulators that speak OSP 1.1, as Gymnasium environments.

Importing the package registers its environment ids if gymnasium is loaded already; gymnasium itself finds them by
entry point when it is imported later.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0"
__all__ = ["__version__"]

if "gymnasium" in sys.modules:
    try:
        from ospbridge.envs.registration import register_envs
    except ImportError:
        # gymnasium is in the middle of its own import and is loading our entry point; it registers us itself.
        pass
    else:
        register_envs()
