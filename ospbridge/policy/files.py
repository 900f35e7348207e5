"""Policies in files: ``.onnx``, or ``.npz`` with the weights of an RLModule by their keys.

An npz file is what ``numpy.savez(file, **module.get_state(inference_only=True))`` writes. Nothing in it is unpickled,
and what an array claims to hold is compared with its size before it is read.
"""

from __future__ import annotations

import math
import stat
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.policy.onnx import LARGEST, check_model

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["read_policy"]

_MOST_ARRAYS: Final = 1000
_DAMAGED: Final = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
)
"""TypeError: a shape of something else than numbers. RuntimeError: an archive that is encrypted, or compressed in a way
that is not known (NotImplementedError)."""
_HEADERS: Final[dict[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_policy(path: str | os.PathLike[str]) -> dict[str, NDArray[np.float32]] | bytes:
    """The weights by their keys, of an ``.npz`` file; the model, of an ``.onnx`` file.

    Raises ConfigurationError for what is neither, or is damaged, too large or in part elsewhere.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".onnx", ".npz"):
        raise ConfigurationError(
            f"the name {str(path)!r} does not end with .onnx or .npz",
            hint="name an .onnx file, or an .npz file of weights",
        )
    try:
        found = path.stat()
        if stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
            raise ConfigurationError("it is a pipe or a device", hint="name an .onnx or .npz file")  # noqa: TRY301  # told like the rest
        if found.st_size > LARGEST:
            raise _too_large(f"{found.st_size} bytes", LARGEST)
        if kind == ".npz":
            return _weights(path)
        model = path.read_bytes()
        check_model(model)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.message}", hint=error.hint) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror or error}", hint="name an .onnx or .npz file"
        ) from None
    return model


def _weights(path: Path) -> dict[str, NDArray[np.float32]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if len(members) > _MOST_ARRAYS:
                raise _too_large(f"{len(members)} arrays", _MOST_ARRAYS)
            if size > LARGEST:
                raise _too_large(f"{size} bytes", LARGEST)
            weights = {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    except _DAMAGED as error:
        raise ConfigurationError(
            f"it is no npz file of weights, or damaged: {str(error) or type(error).__name__}",
            hint="write it with numpy.savez, one array of floating numbers for each key of the RLModule",
        ) from None
    if not weights:
        raise ConfigurationError("it has no arrays", hint="write the state of an RLModule into it")
    return weights


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[np.float32]:
    """Raises ValueError for what is no array of floating numbers."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename!r} is of version {version} of the npy format")
        try:
            shape, fortran, dtype = _HEADERS[version](file)
        except Exception as error:  # noqa: BLE001  # numpy has Python's parser read it, which fails in many ways
            raise ValueError(f"{member.filename!r} has no header of an array: {error}") from None
        if dtype.kind != "f":
            raise ValueError(f"{member.filename!r} is an array of {dtype}, expected float32")
        data = file.read()
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{member.filename!r} has {len(data)} bytes, expected {dtype} of shape {shape}")
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    with np.errstate(over="ignore"):
        # What float32 cannot hold becomes infinite, and is told when it is loaded.
        return array.astype(np.float32)


def _too_large(held: str, most: int) -> ConfigurationError:
    return ConfigurationError(
        f"it holds {held}, at most {most} are read",
        hint="policies of this size are not supported",
    )
