"""An identity of the code, and of the packages that it computes with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from importlib.resources.abc import Traversable


@cache
def code_version(sources: Sequence[str], package_names: Sequence[str]) -> str:
    """Return a hash over all modules of some packages, and over the versions of others that are installed."""
    digest = sha256()
    for package in sources:
        for path, content in sorted(_modules(resources.files(package), package)):
            digest.update(f"{path}\0{len(content)}\0".encode() + content)
    for name in package_names:
        try:
            digest.update(f"{name} {version(name)}\0".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()


def _modules(folder: Traversable, path: str) -> Iterable[tuple[str, bytes]]:
    """Yield the path and the content of each module of a package, in a folder or in an archive."""
    for entry in folder.iterdir():
        if entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry.read_bytes()
        elif entry.is_dir():
            yield from _modules(entry, f"{path}/{entry.name}")
