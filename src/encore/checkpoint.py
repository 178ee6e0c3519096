"""Saving state so that it survives a kill at any moment, and loading it without executing anything.

A checkpoint is one safetensors file: the tensors of a nested state under numbered names, and in the
header, as JSON, all the rest: the state's shape with its numbers and texts, the configuration, and a
checksum over everything. It is written beside its final place, flushed to the disk and then renamed, so
that at the final place there is always a whole checkpoint: the new one or the one before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from encore.errors import EncoreError
from encore.files import written_atomically
from encore.version import VERSION

FORMAT = "1"  # of the file; raised when an older Encore could not read it


def save(path: Path, kind: str, described: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a state and the configuration it belongs to, atomically.

    Args:
        path: the final place.
        kind: what the state is of, "learner" or "run"; loading asks for the same.
        described: the configuration, as JSON values.
        state: nested dictionaries and lists of tensors, numbers, texts and None.

    """
    tensors: dict[str, Tensor] = {}
    tree = _take_out_tensors(state, tensors)
    content = json.dumps({"encore": VERSION, "kind": kind, "described": described, "state": tree})
    header = {"format": FORMAT, "checksum": _checksum(content, tensors), "content": content}
    with written_atomically(path) as unfinished:
        # A single entry: several would be written in an order that changes, and equal states should
        # make equal files.
        save_file(tensors, unfinished, {"encore": json.dumps(header)})


def load(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `save` wrote: the configuration and the state. Tensors come back on the CPU."""
    if not path.is_file():
        raise EncoreError(f"there is no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            # Cloned, because the tensors are views of the file, which the next checkpoint replaces.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise EncoreError(
            f"{path} is truncated or is not an Encore checkpoint ({error}); restore it from a copy, "
            "or delete it to start afresh"
        ) from error
    header = _read_header(path, metadata.get("encore"))
    if header.get("format") != FORMAT:
        raise EncoreError(
            f"{path} has format {header.get('format')}, and this is Encore {VERSION}, "
            f"which reads checkpoints of format {FORMAT}"
        )
    content = header.get("content", "")
    if header.get("checksum") != _checksum(content, tensors):
        raise _damaged(path)
    saved = json.loads(content)
    if saved["kind"] != kind:
        raise EncoreError(f"{path} is the checkpoint of a {saved['kind']}, not of a {kind}")
    return saved["described"], _put_back_tensors(saved["state"], tensors)


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Say so in a sentence if what a checkpoint holds is not what this version of Encore expects."""
    try:
        yield
    except EncoreError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise EncoreError(
            f"{path} does not fit Encore {VERSION}, and may be of another version ({reason}); "
            "load it with the version that saved it"
        ) from error


def _read_header(path: Path, text: str | None) -> dict[str, str]:
    if text is None:
        raise EncoreError(f"{path} was not written by Encore: name a file that it saved")
    try:
        header = json.loads(text)
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(header, dict):
        raise _damaged(path)
    return header


def _damaged(path: Path) -> EncoreError:
    return EncoreError(
        f"{path} was altered or damaged: its checksum does not match; restore it from a copy, "
        "or delete it to start afresh"
    )


def _take_out_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON, each tensor replaced by its number."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensor = value.detach().cpu().contiguous()
        # The format has no shared tensors: a view of one that is already taken out becomes a copy.
        taken = {other.untyped_storage().data_ptr() for other in tensors.values()}
        tensors[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in taken else tensor
        return {"tensor": name}
    return _map_containers(value, lambda inner: _take_out_tensors(inner, tensors), taking_out=True)


def _put_back_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    return _map_containers(value, lambda inner: _put_back_tensors(inner, tensors), taking_out=False)


def _map_containers(value: Any, convert: Callable[[Any], Any], taking_out: bool) -> Any:
    """Convert what is inside a container; a dictionary is kept as pairs, as JSON has only text keys."""
    if isinstance(value, dict) and taking_out:
        return {"pairs": [[key, convert(inner)] for key, inner in value.items()]}
    if isinstance(value, dict):
        return {key: convert(inner) for key, inner in value["pairs"]}
    if isinstance(value, list | tuple):
        return [convert(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state may hold tensors, numbers and texts, not {type(value).__name__}")


def _checksum(content: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
