"""Host ceilings as text: the best rate of each operator at one thread and at all, ridge points, and notes."""

from __future__ import annotations

from collections.abc import Sequence

from common.table_rows import HostCeilingsDocument
from common.view.tables import table_of_cells
from common.view.text import WIDTH, percent, quantity

RATE_UNITS = {"memory": "B/s", "cache": "B/s", "int8": "OP/s"}
MAX_OTHER_LOAD = 0.5  # processors that the operating system itself may occupy
Row = tuple[str, str, int, float]  # label, roof, threads and rate of a measured operator


def ceilings_report(ceilings: HostCeilingsDocument, rows: Sequence[Row]) -> str:
    """Return a line per operator, the ridge points, and whether two halves of the measurement agree."""
    threads = ceilings["threads"]
    counts = list(dict.fromkeys((threads, 1)))
    header = ("operator", *(f"{count} thread{'s' * (count > 1)}" for count in counts))
    ridges = {"fp32": ceilings["peak_flop_per_s"], "int8": ceilings["int8_op_per_s"]}
    memory = ceilings["memory_bytes_per_s"]
    shown = ", ".join(f"{name} {quantity(peak / memory, 'OP/byte')}" for name, peak in ridges.items() if peak)
    verdict = "stable" if ceilings["stable"] else "unstable"
    rates = {(label, count): quantity(rate, RATE_UNITS.get(roof, "FLOP/s")) for label, roof, count, rate in rows}
    labels = dict.fromkeys(label for label, *_ in rows)  # cache arrays depend on the threads and have a line for each
    lines = [
        f"ceilings at {threads} threads, best of {ceilings['slice_count']} slices each",
        str(ceilings["cpu_model"])[:WIDTH],
        table_of_cells(*header).text([label, *(rates.get((label, count), "") for count in counts)] for label in labels),
        f"ridge points {shown}",
        f"{verdict}: two halves differ by {_differences(ceilings)}",
    ]
    return "\n".join(lines)


def _differences(ceilings: HostCeilingsDocument) -> str:
    shares = {
        "compute": ceilings["peak_halves_difference_share"],
        "int8": ceilings["int8_halves_difference_share"],
        "memory": ceilings["memory_halves_difference_share"],
    }
    return ", ".join(f"{percent(share)} ({kind})" for kind, share in shares.items() if share is not None)


def ceiling_notes(ceilings: HostCeilingsDocument, processor_count: int) -> list[str]:
    notes, busy = [], ceilings["busy_processor_count"]
    if ceilings["last_level_cache_bytes"] is None:
        arrays = f"arrays of {ceilings['stream_array_bytes'] // 2**20} MiB"
        notes.append(f"the last-level cache is unknown, so {arrays} are used; compare memory with the data sheet")
    if ceilings["int8_op_per_s"] is None:
        notes.append("the runtime has no int8 product on this processor: int8 nodes are judged by the fp32 roof")
    half_rates = {"fp16": ceilings["fp16_flop_per_s"], "bf16": ceilings["bf16_flop_per_s"]}
    if lacking := [name for name, rate in half_rates.items() if rate is None]:
        notes.append(f"the runtime has no MatMul in {' or '.join(lacking)} on this processor: no roof for it")
    if busy + ceilings["threads"] > processor_count + MAX_OTHER_LOAD:
        idle = f"{busy:.2f} of {processor_count} processors were busy before, {ceilings['threads']} are measured"
        notes.append(f"other work is running ({idle}): the ceilings may be too low; stop it and rerun <host_ceilings>")
    if not ceilings["stable"]:
        remedy = "stop other work on this host and rerun <host_ceilings>, with more <seconds>"
        lost = ceilings["lost_to_threads_share"]
        less = f", and all threads together reach {percent(lost)} less than one thread" if lost else ""
        notes.append(f"unstable: the best slices of two halves differ by {_differences(ceilings)}{less}; {remedy}")
    return notes
