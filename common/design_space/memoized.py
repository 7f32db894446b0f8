"""Methods that compute each result once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def memoized(method: Method) -> Method:
    """Keep the results of a method by their arguments, in its object and as long as the object lives."""
    name = f"_results_of_{method.__name__}"

    @wraps(method)
    def known_or_computed(self: object, *arguments: Hashable) -> Any:
        known = vars(self).setdefault(name, {})
        if arguments not in known:
            known[arguments] = method(self, *arguments)
        return known[arguments]

    return cast(Method, known_or_computed)
