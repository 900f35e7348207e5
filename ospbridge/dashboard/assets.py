"""The files of the page, as they come with the package."""

from __future__ import annotations

from importlib import resources
from typing import Final

__all__ = ["TYPES", "page_files"]

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""By what a name ends in; anything else that lies there is none of them."""


def page_files() -> dict[str, bytes]:
    """By their names."""
    folder = resources.files(__package__) / "page"
    return {
        file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in TYPES
    }
