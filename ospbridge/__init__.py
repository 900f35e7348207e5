"""ospbridge: robot simulators that speak OSP 1.1, as Gymnasium environments.

Importing this package registers its environment ids, whichever of gymnasium and ospbridge is imported first, and does
not import gymnasium by itself.
"""

from __future__ import annotations

from ospbridge._arrival import when_imported

__version__ = "0.1.0"
__all__ = ["__version__"]


def _register() -> None:
    from ospbridge.envs import register_envs

    register_envs()


when_imported("gymnasium.envs.registration", _register)
