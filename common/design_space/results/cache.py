"""Results on disk. The key of a result is the content and the code that it follows from, so nothing is searched twice.

The cache is a database in a folder of its own, which may be deleted at any time. Whatever is wrong with it costs time,
never a result: an entry that is torn or foreign is computed again, a file that is no database is replaced, and where
none can be written nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from common.process import code_version as versions

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
SOURCES = ("common.design_space", "common.workload")  # what computes results from layers and accelerators
PACKAGES = ("numpy", "torch", "cma", "nevergrad", "optuna")  # whose versions may change a result
FILE = "designs.sqlite"
WAIT_S = 60.0  # for another process that writes
NO_DATABASE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)  # the last: other columns
_TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, version TEXT, checksum BLOB, content BLOB)"


def default_folder() -> Path:
    """Return the folder of the cache where none is named, as the XDG base directory specification has it."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if named.startswith("/") else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111
    return base / "onnx-profile"


def code_version() -> str:
    return versions.code_version(SOURCES, PACKAGES)


def text_of(value: Any) -> str:
    """Return a value of plain types, tuples, lists, sets, mappings and dataclasses as text.

    Equal texts are equal values. The order of a mapping counts, because results may follow it.
    """
    return json.dumps(_encoded(value), separators=(",", ":"))


def value_of(text: str, kinds: Iterable[type] = ()) -> Any:
    """Return the value of a text that :func:`text_of` made; ValueError for any other text."""
    try:
        return _decoded(json.loads(text), {kind.__name__: kind for kind in kinds})
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no value of ours ({error!r})") from error


def _encoded(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, list):
        return {"list": [_encoded(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"set": sorted((_encoded(item) for item in value), key=json.dumps)}
    if isinstance(value, Mapping):
        return {"map": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if is_dataclass(value):
        return {type(value).__name__: [_encoded(getattr(value, field.name)) for field in fields(value)]}
    raise TypeError(f"{type(value).__name__} has no text")


def _decoded(value: Any, kinds: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(item, kinds) for item in value)
    if not isinstance(value, dict):
        return value
    ((name, items),) = value.items()
    decoded = [_decoded(item, kinds) for item in items]
    if name == "list":
        return decoded
    if name == "set":
        return frozenset(decoded)
    return dict(decoded) if name == "map" else kinds[name](*decoded)


def key_of(*content: Any) -> str:
    """Return the key of the result that follows from a content, computed by this code."""
    return sha256(f"{code_version()}\0{text_of(content)}".encode()).hexdigest()


class ResultCache:
    """Results of earlier computations; ``problem`` says why nothing is kept any more, and is empty while it works."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.problem = folder, ""
        self._connection: sqlite3.Connection | None = None
        self._is_replaced = False

    def __reduce__(self) -> tuple[type[ResultCache], tuple[Path]]:
        """Let another process open the same folder by itself."""
        return ResultCache, (self.folder,)

    def get(self, key: str, kinds: Sequence[type]) -> Any:
        """Return the result of a key, in which there are dataclasses of these kinds; None where it is not known."""
        query = "SELECT checksum, content FROM results WHERE key = ?"
        for checksum, content in self._do(lambda database: database.execute(query, (key,)).fetchall()) or ():
            with contextlib.suppress(ValueError):
                if isinstance(content, bytes) and checksum == _checksum(content):
                    return value_of(content.decode(), kinds)
        return None

    def put(self, key: str, result: Any) -> None:
        content = text_of(result).encode()
        row = (key, code_version(), _checksum(content), content)
        self._do(lambda database: database.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", row))

    def trim(self, most_bytes: int) -> None:
        """Drop results until the cache is no larger than it may be: first those of other code, then the oldest."""
        self._do(lambda database: _trim(database, most_bytes))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let every function that is :func:`remembered` keep its results here, and close the database at the end."""
        token = _IN_USE.set(self)
        try:
            yield
        finally:
            _IN_USE.reset(token)
            self._close()

    def _do(self, action: Callable[[sqlite3.Connection], Result]) -> Result | None:
        try:
            return None if self.problem else action(self._connected())
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in NO_DATABASE and not self._is_replaced:
                self._replace()
            else:
                self.problem = str(error)
        except OSError as error:
            self.problem = error.strerror or str(error)
        return None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.folder / FILE, timeout=WAIT_S, isolation_level=None)
            self._connection = connection
            connection.text_factory = bytes  # whatever an entry holds, it can be read
            connection.execute("PRAGMA synchronous = OFF")  # a power failure may tear the file, a kill does not
            connection.execute(_TABLE)
        return self._connection

    def _replace(self) -> None:
        """Remove a file that is no database of ours, once."""
        self._close()
        self._is_replaced = True
        try:
            (self.folder / FILE).unlink(missing_ok=True)
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_IN_USE: ContextVar[ResultCache | None] = ContextVar("cache", default=None)


def remembered(*kinds: type) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator for functions whose results, of dataclasses of these kinds, follow from arguments alone.

    While a cache is in use, each result is computed once.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def known_or_computed(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            store = _IN_USE.get()
            if store is None:
                return function(*args, **kwargs)
            key = key_of(function.__module__, function.__qualname__, args, kwargs)
            known: Result | None = store.get(key, kinds)
            if known is None:
                known = function(*args, **kwargs)
                store.put(key, known)
            return known

        return known_or_computed

    return decorate


def _checksum(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()


def _trim(database: sqlite3.Connection, most_bytes: int) -> None:
    older = "DELETE FROM results WHERE rowid <= (SELECT rowid FROM results ORDER BY rowid LIMIT 1 OFFSET ?)"
    of_others = [("DELETE FROM results WHERE version != ?", code_version())]
    while _size_bytes(database) > most_bytes:
        (count,) = database.execute("SELECT COUNT(*) FROM results").fetchone()
        if not count:
            break
        command, argument = of_others.pop() if of_others else (older, count // 2)
        database.execute(command, (argument,))
        database.execute("VACUUM")


def _size_bytes(database: sqlite3.Connection) -> int:
    pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages) * int(size)
