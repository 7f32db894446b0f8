"""Which output of a generative model is fed to which input in its next call, by their names.

The names are those of optimum and transformers (``past_key_values.0.key`` and ``present.0.key``), of ONNX Runtime GenAI
and of ONNX Runtime's own tools (``past_0`` and ``present_0``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# What an exporter makes of the name of an input for that of the output.
RENAMED = (("past_key_values", "present"), ("past_key_values", "present_key_values"), ("past", "present"))
PAST = "past"  # in the name of a cache, also of one that no call changes: the keys of an encoder
MARKED = ("{}_out", "new_{}", "next_{}", "output_{}")


def paired_names(
    inputs: Iterable[str], outputs: Iterable[str], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the output of each input that is a cache: the ``given`` ones, else by their names."""
    returned = {*outputs}
    candidates = {
        name: (
            *(name.replace(*words) for words in RENAMED if words[0] in name),
            *(form.format(name) for form in MARKED),
        )
        for name in inputs
    }
    found = {name: next((one for one in names if one in returned), "") for name, names in candidates.items()}
    return {name: output for name, output in found.items() if output} | dict(given or {})
