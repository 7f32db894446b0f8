"""The basis of a verdict on energy: which side is known less well, and what is counted."""

from __future__ import annotations

import pytest

from common.fpga.speedup.amdahl import row
from common.fpga.speedup.verdict import JudgedHost, boundary, verdicts, weaker_side

# On the host 70 to 160; of it 0.7, 0.8 and 0.9 move; with the card 21 + 30, 20 + 20 and 16 + 10.
HOST, MOVED, NEW = (70.0, 100.0, 160.0), (0.7, 0.8, 0.9), (51.0, 40.0, 26.0)


def rows(host=HOST, moved=MOVED, new=NEW):
    cells = {"host_total": host, "accelerated_fraction": moved, "new_total": new, "total_speedup": (1.1, 2.0, 3.0)}
    latency = row("latency", "accelerated_fraction", (0.5, 0.5, 0.5), "share")
    return [latency, *(row("energy", term, cases, "uj") for term, cases in cells.items())]


def test_the_modelled_card_is_known_less_well_than_a_host_with_a_meter():
    for source in ("measured", "given"):
        assert weaker_side(source, rows()) == (
            "the card's energy is known less well: it is modelled, within a factor of 3.0; the host's is "
            f"{source}, within a factor of 2.3"
        )


def test_of_two_modelled_sides_the_wider_one_is_known_less_well():
    assert weaker_side("modelled", rows()).startswith("the card's energy is known less well")
    wide = weaker_side("modelled", rows(host=(20.0, 100.0, 210.0), new=(36.0, 40.0, 31.0)))
    assert wide.startswith("the host's energy is known less well: it is modelled, within a factor of 10.5; the card's")


@pytest.mark.parametrize("changes", [{"host": (None,) * 3}, {"new": (None,) * 3}, {"moved": (0.0, 0.0, 0.0)}])
def test_nothing_is_compared_where_a_side_is_unknown_or_absent(changes):
    assert weaker_side("measured", rows(**changes)) == ""


def test_the_boundary_says_what_is_counted_and_what_is_not():
    assert "for the host the domains of its power sensors" in boundary("measured")
    assert "for the host the packages and their memory, as the name" in boundary("modelled")
    assert boundary("modelled", "2 of 48 threads").startswith("energy counts for the host 2 of 48 threads, and for ")
    assert "it does not count the host's memory during transfers" in boundary("given")
    assert "for the host what its source covers, and for the whole card" in boundary("another meter")


def test_only_the_verdict_on_energy_has_a_basis():
    verdict = verdicts(rows(), {}, JudgedHost(), "given")
    assert [(each["objective"], bool(each["weaker_side"]), bool(each["boundary"])) for each in verdict] == [
        ("energy", True, True)
    ]
    assert verdict[0]["weaker_side"] == weaker_side("given", rows())
    assert verdict[0]["boundary"] == boundary("given")


def test_a_virtual_host_is_named_in_the_verdict():
    verdict = verdicts(rows(), {}, JudgedHost(), "modelled", "2 of the 48 hardware threads of a package")[0]
    assert verdict["boundary"].startswith(
        "energy counts for the host 2 of the 48 hardware threads of a package, and for "
    )
