"""The closing summary and the report: what they say, and that they say it in 80 columns and one file."""

import re
from html import escape

import pandas as pd
import pytest

from common.artifacts.catalogue import ARTIFACTS, PICTURES
from common.artifacts.frames import records
from common.artifacts.stages import STAGES
from common.messages.note_kinds import ENDANGERED
from common.sensors.other_work import OtherWork
from common.view.executed_nodes import by_op_type
from common.view.findings import Findings, StageRecord
from common.view.html import figure, html_table
from common.view.plan.verdict_text import offload_lines, outlook
from common.view.profile.latency_plot import draw_latency
from common.view.profile.latency_text import steady_text
from common.view.report.page import report_html
from common.view.report.summary_text import closing_summary
from common.view.report.warnings_text import sorted_warnings
from common.view.roofline.roofline_text import REASONS, roofline_report
from common.view.text import MISSING, WIDTH
from tests.support.tables.energy import latency_summary
from tests.support.tables.offload import uncertainty, verdicts
from tests.support.tables.view import BANDWIDTH, PEAK, all_tables

CASES = ("pessimistic", "likely", "optimistic")


def warnings(found):
    return [line for lines in sorted_warnings(found).values() for line in lines]


@pytest.fixture(scope="module")
def tables():
    return all_tables()


def record(script, *notes, **fields):
    told = {"threads": {"value": 2, "from": "default"}}
    parts = {"model_id": "ef" * 32, "model_path": "a.onnx", "host": {"cpu_model": "A CPU"}, "tools": {"onnx": "1.2"}}
    return StageRecord(
        script, STAGES[script].writes, f"{script} --x", **{**parts, **fields}, settings=told, notes=notes
    )


def findings(tables, *names, stages=(), notes=(), **documents):
    kept = names or tuple(tables)
    frames = {name: records(tables[name]) for name in kept if isinstance(tables[name], pd.DataFrame)}
    plain = {name: tables[name] for name in kept if isinstance(tables[name], dict)} | documents
    return Findings(frames, plain, tuple(stages), tuple(notes))


@pytest.mark.slow
def test_the_summary_fits_a_terminal_and_names_each_finding(tables):
    stages = [
        record("01_profile_onnx.py", "a note with a remedy"),
        record("07_fpga_candidates.py", "an estimate " * 20),
    ]
    text = closing_summary(findings(tables, stages=stages))
    assert max(map(len, text.splitlines())) <= WIDTH
    for line in (
        "a.onnx (efefefefefef)",
        "A CPU, 2 threads, CPUExecutionProvider",
        "  median     75.4 ms (74.6 ms to 76.9 ms), 95 % confidence, 100 unprofiled runs",
        "             too few runs for p99, p99.9; raise <runs>",
        "  profiling  adds 4.0 % to a run",
        "  Conv x53    68.4 ms  95.3 %   118 GFLOP/s     52 %  compute",
        "  1 conv1           4.21 ms  5.9 %  56.1 GFLOP/s     23 %  compute",
        "  span       65.9 ms: the longest chain, 53 of 57 nodes",
        "  work       70.4 ms: all nodes; parallelism = work / span = 1.07",
        "  energy     428 mJ per inference (modelled), 257 mJ to 857 mJ",
        "  K1 52 Conv         50.0 %  35.9 ms  22.4 ms  11.6 ms to 51.3 ms",
        "  end to end  likely     90 % within   pays  least gain  most gain  verdict",
        "  latency      1.27x   0.881 to 1.56   0.86      0.781x      1.67x  undecided",
        "  throughput   2.50x    1.41 to 2.50  >0.99       1.17x      2.50x  pays",
        "  - latency: pays above 1.02x for the kernels (likely 1.60x), and gains at most",
        "    2.42x with infinitely fast ones",  # 1 / (0.4 + 0.013)
        "  - [01] a note with a remedy",
    ):
        assert line in text.splitlines()
    assert "makespan = work + gap = 71.8 ms; the gap between nodes is 2.0 %" in text


def test_what_is_absent_leaves_no_empty_heading(tables):
    text = closing_summary(findings(tables, "run_latency", notes=["absent: op_roofline.csv; run 03"]))
    assert re.findall(r"^[A-Z ]+$", text, re.M) == ["WARNINGS"]
    assert "  - absent: op_roofline.csv; run 03" in text


def test_names_in_angle_brackets_are_spelled_out_before_lines_are_wrapped(tables):
    """The flag is longer than the name of its quantity."""
    flag = "01_profile_onnx.py --runs" + "." * 40
    lines = closing_summary(findings(tables), lambda line: line.replace("<runs>", flag)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    first = lines.index("             too few runs for p99, p99.9; raise 01_profile_onnx.py")
    assert lines[first + 1] == " " * 13 + "--runs" + "." * 40
    unstable = {"host_ceilings": tables["host_ceilings"] | {"stable": False}}
    page = report_html(
        Findings(documents=unstable), "", {}, PICTURES, lambda line: line.replace("<host_ceilings>", "00_x.py")
    )
    assert "rerun 00_x.py and &lt;op_roofline&gt;" in page


def test_nothing_to_warn_of_is_no_section(tables):
    assert "WARNINGS" not in closing_summary(findings(tables, "latency_summary"))


def test_the_share_of_the_roof_of_a_group_is_time_at_the_roof_over_time():
    rows = [(3.0, 0.5), (5.0, 0.9), (2.0, None)]  # the last does no arithmetic
    table = pd.DataFrame(
        {
            "op_type": "Conv",
            "row_kind": "node",
            "node_latency_us": [time for time, _ in rows],
            "latency_share": [time / 10 for time, _ in rows],
            "roof_share": [share for _, share in rows],
            "flops": [7, 11, 0],
            "bytes": 1,
            "is_correction_dominated": [True, False, True],
            "bound": ["memory", "compute", ""],
        }
    )
    (group,) = by_op_type(records(table))
    assert group.roof_share == pytest.approx((3 * 0.5 + 5 * 0.9) / 8)
    assert group.attained_flop_per_s == pytest.approx(18 / 10e-6)
    assert (group.node_count, group.bound) == (3, "compute")


def test_a_group_of_unknown_work_has_no_share_and_no_rate():
    table = pd.DataFrame(
        {"op_type": ["Loop"], "row_kind": "node", "node_latency_us": 3.0, "latency_share": 1.0, "bound": ""}
    ).assign(roof_share=float("nan"), flops=float("nan"), bytes=float("nan"), is_correction_dominated=False)
    (group,) = by_op_type(records(table))
    assert (group.roof_share, group.attained_flop_per_s, group.bound) == (None, None, "")


@pytest.mark.parametrize(
    ("flops", "moved", "dominated"),
    [(None, 11, False), (7, None, False), (7, 11, True)],
    ids=["FLOPs", "bytes", "time"],
)
def test_rates_of_a_type_are_refused_alike_by_the_report_of_03_and_by_the_summary(tables, flops, moved, dominated):
    """FLOPs or bytes of one node are unknown, or the profiler's correction dominates every node."""
    roofline = tables["op_roofline"].copy()
    convs = roofline["op_type"] == "Conv"
    roofline.loc[convs, "is_correction_dominated"] = dominated
    first = roofline.index[convs][0]
    roofline.loc[first, ["flops", "bytes"]] = [flops, moved]
    lines = roofline_report(records(roofline), {"fp32": PEAK}, BANDWIDTH, 1.0, None).splitlines()
    summary = closing_summary(findings({**tables, "op_roofline": roofline}, "op_roofline")).splitlines()
    told, closing = (next(line for line in text if line.split()[:1] == ["Conv"]) for text in (lines, summary))
    assert told.split().count(MISSING) == 3  # FLOP/s, B/s, of roof
    assert closing.split().count(MISSING) == 2
    assert not {"FLOP/s", "GFLOP/s"} & set(closing.split())


def test_a_few_runs_have_no_tails_and_no_spread(tables):
    empty = dict.fromkeys(f"{name}{end}_us" for name in ("p90", "p95") for end in ("", "_low", "_high"))
    few = tables["latency_summary"] | empty | {"jitter_us": None, "p50_low_us": None, "p50_high_us": None}
    lines = closing_summary(Findings(documents={"latency_summary": few})).splitlines()
    assert "  median     75.4 ms, 95 % confidence, 100 unprofiled runs" not in lines
    assert "  median     75.4 ms, no interval, 100 unprofiled runs" in lines
    assert not any(line.startswith("  tails") for line in lines)
    assert "  spread     71.8 ms to 97.6 ms" in lines


def test_an_energy_without_source_says_how_to_get_one(tables):
    unknown = {"energy_summary": tables["energy_summary"] | {"energy_uj": None}}
    assert "  energy     unavailable; give <avg_power_w>" in closing_summary(Findings(documents=unknown))


def test_a_plan_without_kernels_says_so(tables):
    nothing = {"speedup": tables["speedup"].assign(**dict.fromkeys(CASES, float("nan")))}
    nothing["offload_verdict"] = verdicts(nothing["speedup"]).assign(verdict="host alone")
    nothing = {name: records(table) for name, table in nothing.items()}
    assert offload_lines(nothing) == ["  everything stays on the host: no plan with the card ends sooner"]
    assert outlook(nothing) == []


def test_an_unknown_energy_gain_is_a_dash_with_its_remedy(tables):
    rows = tables["speedup"].copy()
    rows.loc[rows["objective"] == "energy", list(CASES)] = float("nan")
    energy = next(
        line
        for line in offload_lines({"speedup": records(rows), "offload_verdict": records(verdicts(rows))})
        if line.startswith("  energy")
    )
    assert energy.split() == ["energy", "–", "–", "–", "–", "–", "unknown"]
    assert outlook({"speedup": records(rows)})[-1] == "energy: unknown; give <cpu> or <avg_power_w>"


def test_overheads_that_no_kernel_can_repay_are_named(tables):
    rows = tables["speedup"].copy()
    rows.loc[(rows["objective"] == "latency") & (rows["term"] == "break_even_kernel_speedup"), "likely"] = float("nan")
    first = outlook({"speedup": records(rows)})[0]
    assert first.startswith("latency: pays at no kernel speedup for the kernels (likely 1.60x), and")


def warned(tables, name, **changes):
    changed = tables[name] | changes if isinstance(tables[name], dict) else tables[name].assign(**changes)
    return "\n".join(warnings(findings({**tables, name: changed}, name)))


def test_each_instability_is_a_warning_with_its_remedy(tables):
    assert warned(tables, "host_ceilings") == warned(tables, "latency_summary") == ""
    unstable = warned(tables, "host_ceilings", stable=False, peak_halves_difference_share=0.07)
    assert "(differences between two halves of compute 7.0 %)" in unstable
    assert "rerun <host_ceilings> and <op_roofline>" in unstable
    unstable = warned(
        tables, "host_ceilings", stable=False, lost_to_threads_share=0.29, int8_halves_difference_share=None
    )
    assert "(differences between all threads and one 29.0 %)" in unstable
    assert "profiling adds 11.0 %" in warned(tables, "latency_summary", profiling_overhead_fraction=0.11)


def test_nodes_that_cannot_be_ranked_and_an_odd_gap_are_warned_of(tables):
    kinds = tables["op_roofline"]["row_kind"]
    assert "above the roof: 1 of 57 nodes, 1.4 % of the latency" in warned(tables, "op_roofline")
    flagged = warned(tables, "op_roofline", is_correction_dominated=kinds != "gap", is_above_roof=False)
    assert flagged.startswith("dominated by the profiler's correction: 57 of 57 nodes, 98.0 % of the latency")
    share = tables["op_roofline"]["latency_share"].where(kinds != "gap", 0.083)
    assert "the gap between nodes is 8.3 % of the latency" in warned(tables, "op_roofline", latency_share=share)


def test_a_gap_that_takes_more_than_any_operator_leads(tables):
    kinds = tables["op_roofline"]["row_kind"]
    share = (tables["op_roofline"]["latency_share"] * 0.1).where(kinds != "gap", 0.88)
    text = closing_summary(findings({**tables, "op_roofline": tables["op_roofline"].assign(latency_share=share)}))
    lines = text.splitlines()
    first = lines.index("WHAT MATTERS") + 2
    assert lines[first].split()[:3] == ["gap", "between", "nodes"] and "88.0 %" in lines[first]
    assert lines[first + 1].split()[:2] == ["Conv", "x53"]
    assert lines[lines.index("WARNINGS") + 1] == "  that void the answer"
    assert lines[lines.index("WARNINGS") + 2].startswith("  - the gap between nodes is 88.0 % of the latency")
    assert text.count("is 88.0 % of the latency") == 1


def test_a_busy_host_and_node_times_above_the_latency_are_said_before_any_figure(tables):
    roofline = tables["op_roofline"]
    gap = roofline["row_kind"] == "gap"
    share = (roofline["latency_share"] * 2.05 / 0.98).where(~gap, -1.05)
    work = OtherWork()
    work.processors, work.processor_count = 1.3, 2
    stages = [record("01_profile_onnx.py", "another note", *work.notes(2)), record("02_shapes_flops_bytes.py", "more")]
    found = findings({**tables, "op_roofline": roofline.assign(latency_share=share)}, stages=stages)
    text = closing_summary(found)
    lines = text.splitlines()
    first, after = lines.index("  that void the answer"), lines.index("LATENCY")
    said = " ".join(" ".join(lines[first:after]).split())
    assert first < after
    assert "- [01] the host was busy: other work took 1.3 of its 2 processors" in said
    assert "- the gap between nodes is -105.0 % of the latency" in said
    assert lines[lines.index("WHAT MATTERS") + 2].split()[:3] == ["gap", "between", "nodes"]
    assert (text.count("the host was busy"), text.count("is -105.0 % of the latency")) == (1, 1)
    assert "another note" in text.partition("\nWARNINGS\n")[2]
    assert len(warnings(found)) == len(set(warnings(found))) == 5


def test_nothing_voids_the_answer_of_a_quiet_run(tables):
    assert "that void" not in closing_summary(findings(tables, stages=[record("01_profile_onnx.py", "a note")]))


def test_the_summary_opens_with_the_answer_and_ranks_warnings_by_what_they_do_to_it(tables):
    """An empty p99 and a missing fp16 product change no verdict; what 07 and 01 say of times does."""
    notes = {
        "00_host_ceilings.py": "the runtime has no MatMul in fp16 or bf16 on this processor: no roof for it",
        "01_profile_onnx.py": "p99, p99.9 left empty: 100 runs give no upper confidence limit",
        "05_energy_estimate.py": "the static power is modelled",
        "07_fpga_candidates.py": "int8: the model's accuracy in this number format is not judged",
    }
    text = closing_summary(findings(tables, stages=[record(script, note) for script, note in notes.items()]))
    answer = (
        "Undecided whether to offload 52 Conv, 1 Gemm to a U280 in fp32: 1.3x faster, 90 % within 0.88 to 1.6, pays "
        "with probability 0.86"
    )
    assert " ".join(text.splitlines()[:2]) == answer
    titles = [line for line in text.splitlines() if line.isupper()]
    assert titles[:3] == ["WHAT WOULD CHANGE THE ANSWER", "WARNINGS", "LATENCY"]
    doubts = text.partition("WARNINGS\n")[2].partition("\n\n")[0]
    places = [
        doubts.index(words) for words in ("that move the answer", "[07] int8", "that move its energy", "[05] the")
    ]
    places += [doubts.index(words) for words in ("that leave it as it is", "[00] the runtime has no MatMul")]
    assert places == sorted(places)
    assert [line[:4] for line in warnings(findings(tables, stages=[record(*note) for note in notes.items()]))] == [
        *("[07]", "[05]", "[00]", "abov", "[01]")
    ]
    page = report_html(findings(tables), "", {}, PICTURES)
    assert page.index(f"<h1>{answer}</h1>") < page.index("What would change the answer")
    assert page.index("What would change the answer") < page.index("<h2>Key figures</h2>")


def test_without_a_plan_there_is_no_answer_yet(tables):
    text = closing_summary(findings(tables, "op_roofline", "latency_summary"))
    assert text.startswith("Not judged: there is no offload plan; run <offload_plan>\n")


def test_what_is_not_judged_has_no_speedup_in_the_report(tables):
    doubts, uncertain = ["the host was busy", "the gap is too large"], uncertainty(is_judged=False)
    judged = {"offload_verdict": verdicts(tables["speedup"], doubts), "offload_uncertainty": uncertain}
    page = report_html(findings({**tables, **judged}), "", {}, PICTURES)
    assert "<h1>Not judged: the host was busy (and 1 more)</h1>" in page
    of_verdict = page.partition('<section id="verdict">')[2].partition("</section>")[0]
    assert all(f"<li>{doubt}</li>" in of_verdict for doubt in doubts)
    assert "<li>rerun &lt;op_latency&gt; on an idle host</li>" in page
    assert "<h2>Why nothing is judged, and what to do</h2>" in page
    assert "\nWHY NOTHING IS JUDGED, AND WHAT TO DO\n" in closing_summary(findings({**tables, **judged}))
    shown = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert not re.search(r">[^<]*\b\d+(\.\d+)?x\b", shown)
    assert re.search(r">[^<]*\b\d+(\.\d+)?x\b", report_html(findings(tables), "", {}, PICTURES))


@pytest.mark.parametrize(
    ("overhead", "text"),
    [
        (0.039, "adds 3.9 % to a run"),
        (-0.011, "costs no time that could be measured"),
        (
            -0.843,
            "unknown: profiled runs took 84.3 % less than the others, so the host changed between them",
        ),
    ],
)
def test_profiling_never_saves_time(tables, overhead, text):
    summary = tables["latency_summary"] | {"profiling_overhead_fraction": overhead}
    closing = closing_summary(Findings(documents={"latency_summary": summary}))
    assert f"profiling {text}" in " ".join(closing.split())
    title = draw_latency(tables["run_latency"], summary).texts[0].get_text()
    assert title.endswith(f"; profiling {text}")


def test_profiled_runs_that_came_last_are_said_to(tables):
    summary = tables["latency_summary"] | {"profiling_overhead_fraction": 0.039, "is_alternating": False}
    closing = closing_summary(Findings(documents={"latency_summary": summary}))
    assert "profiling adds 3.9 % to a run, in runs after the others" in " ".join(closing.split())


def test_each_reason_to_be_above_the_roof_is_a_warning_of_its_own(tables):
    """A cache serves traffic and never computes: a compute-bound node is above its roof for another reason."""
    roofline = tables["op_roofline"]
    convs = (roofline["op_type"] == "Conv") & (roofline["bound"] == "compute")
    reasons = roofline["roof_share_reason"].where(~convs, "winograd")
    lines = warned(tables, "op_roofline", is_above_roof=roofline["is_above_roof"] | convs, roof_share_reason=reasons)
    assert "1.4 % of the latency: operands from a cache; rerun <host_ceilings>" in lines
    assert "of the latency: Winograd or FFT multiplies less; rerun <host_ceilings>" in lines
    (column,) = (column for column in ARTIFACTS["op_roofline"].columns if column.name == "roof_share_reason")
    stated = {*column.allowed} - {"other_device", "unstable"}  # then no share is stated
    assert stated == {*REASONS}


def test_warnings_come_in_the_order_of_what_they_endanger(tables):
    scripts = ("00_host_ceilings", "01_profile_onnx", "02_shapes_flops_bytes", "05_energy_estimate")
    stages = [record(f"{script}.py", "said so") for script in (*scripts, "07_fpga_candidates")]
    roofline, ceilings = tables["op_roofline"], tables["host_ceilings"] | {"stable": False}
    share = roofline["latency_share"].where(roofline["row_kind"] != "gap", 0.5)
    found = Findings(
        {"op_roofline": records(roofline.assign(latency_share=share, is_above_roof=False))},
        {"host_ceilings": ceilings},
        tuple(stages),
        ("absent: x.csv; run y", "y.csv: stale"),
    )
    starts = ["y.csv: stale", "[07] said", "[01] said", "the gap between", "[02] said", "[05] said", "[00] said"]
    starts += ["the ceilings are", "absent: x.csv"]
    assert [line[: len(start)] for line, start in zip(warnings(found), starts, strict=True)] == starts


def test_the_summary_has_five_notes_of_different_kinds_and_the_report_has_all_in_groups(tables):
    first = [f"run {number} (+3.1 ms): it was slow" for number in range(4)]
    times = [f"time {number}" for number in range(7)]
    lost = "os_events: incomplete: 23 are lost"
    stages = [
        record("00_host_ceilings.py", "no roof"),
        record("01_profile_onnx.py", *times, *first, lost, "nvml: no GPU", "perf: none", "the host was busy: 1"),
        record("09_trace_report.py", f"out/os_events.csv: incomplete ({lost})"),
        record("03_merge_profile_metrics.py", "out/os_events.csv: incomplete (23 are lost)"),
    ]
    found = findings(tables, stages=stages, notes=[f"x.csv: incomplete (made from {lost})", "y.csv: stale"])
    text = closing_summary(found)
    doubts = text.partition("WARNINGS\n")[2].partition("\n\n")[0]
    bullets = [line.strip(" -") for line in doubts.splitlines() if line.startswith("  - ")]
    assert bullets == ["y.csv: stale", "[01] the host was busy: 1", "[01] time 0", "[01] time 1", "[01] nvml: no GPU"]
    lines = warnings(found)
    assert f"  {len(lines) - 5} more in report.html" in text
    page = report_html(found, "", {}, PICTURES)
    assert [*re.findall("<h3>([^<]*)</h3>", page)][-7:] == [
        *("Every figure: tables that are stale, foreign or damaged", "Every time", "Times of runs and nodes"),
        *("Energy", "Roofs, and shares of them", "Single runs: what made them slow", "What is absent"),
    ]
    assert all(f"<li>{escape(line)}</li>" in page for line in lines)
    assert sum("23 are lost" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("note", "is_told"),
    [
        ("out/x.csv: incomplete (23 are lost)", False),
        ("out/x.csv: incomplete (made from y.csv: made from os_events.csv: 23 are lost)", False),
        ("out/x.csv: incomplete (os_events: incomplete: 23 are lost)", False),
        ("out/x.csv: incomplete (123 are lost)", True),
        ("out/x.csv: incomplete (power: 23 are lost)", True),
        ("out/x.csv: incomplete (it ended early (23 are lost))", True),
        ("out/x.csv: incomplete ()", True),
    ],
)
def test_a_table_is_told_to_be_incomplete_unless_a_stage_tells_the_same_reason(note, is_told):
    said = [record("01_profile_onnx.py", "os_events: incomplete: 23 are lost", "a note without an end: ")]
    assert (note in warnings(findings({}, stages=said, notes=[note]))) == is_told


def test_the_notes_of_every_stage_have_their_place():
    placed = {table for tables in ENDANGERED.values() for table in tables}
    for script, stage in STAGES.items():
        assert len(placed & set(stage.writes)) == (script != "06_plots.py"), script


def test_a_name_is_neither_a_quantity_nor_a_command_to_the_terminal(tables):
    name = "/a/<runs>/\x1b[2J\u202e\n$x$"
    first = tables["op_roofline"]["executed_node"].iloc[0]
    renamed = {
        key: table.replace({"executed_node": {first: name}}) if "executed_node" in table else table
        for key, table in tables.items()
        if hasattr(table, "replace")
    }
    stages = [record("01_profile_onnx.py", f"about {name}")]
    found = findings(renamed, stages=stages)
    text = closing_summary(found, lambda line: line.replace("<runs>", "--runs"))
    page = report_html(found, text, {}, PICTURES, lambda line: line.replace("<runs>", "--runs"))
    assert all(character.isprintable() or character == "\n" for character in text + page)
    assert "--runs" not in text.partition("WHAT MATTERS")[2]
    assert "&lt;runs&gt;" in page and r"\x1b[2J\u202e\n$x$" in page


def test_a_note_of_two_tables_is_said_once(tables):
    twice = [record("01_profile_onnx.py", "no sensor", "no sensor")]
    assert warnings(findings(tables, "run_latency", stages=twice)) == ["[01] no sensor"]


# --- the report -----------------------------------------------------------------------------------------------------


def test_the_report_needs_nothing_from_outside_and_escapes_what_it_shows(tables):
    stages = [record("01_profile_onnx.py", "a <script>alert(1)</script> note")]
    text = report_html(
        findings(tables, stages=stages), "sum & <b>", {"latency": b'<?xml?><svg id="a"></svg>'}, PICTURES
    )
    assert text.count("<script") == 1 and "alert(1)" not in text.partition("<script>")[2]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "sum &amp; &lt;b&gt;" in text
    assert not re.search(r"(src|href)=\"(?!#)", text)
    assert [*re.findall(r"<section id=\"([a-z-]+)\"", text)] == [
        *("graph", "pictures", "operators", "nodes", "path", "bottlenecks", "energy-table"),
        *(
            "candidates",
            "plan",
            "verdict",
            "comparison",
            "front",
            "speedup",
            "ceilings",
            "notes",
            "summary",
            "provenance",
        ),
    ]


def test_a_report_of_nothing_but_notes_has_no_empty_sections():
    text = report_html(Findings(notes=("left out: a.csv: corrupt",)), "", {}, PICTURES)
    assert re.findall(r"<section id=\"([a-z-]+)\"", text) == ["notes", "summary"]


def test_ids_of_two_drawings_do_not_clash():
    svg = b'<?xml version="1.0"?>\n<svg><path id="p"/><use href="#p"/><g clip-path="url(#c)"/></svg>'
    drawn = figure("roofline", 'a "caption"', svg)
    assert '<path id="roofline-p"/><use href="#roofline-p"/><g clip-path="url(#roofline-c)"/>' in drawn
    assert 'aria-label="a &quot;caption&quot;"' in drawn


def test_numbers_stand_right_and_words_left():
    text = html_table(("name", "time", "share"), [["a & b", "3.1 ms", "5 %"], ["c", "–", "11.0 %"]], "an aside")
    assert '<table class="right-2 right-3">' in text
    assert "<td>a &amp; b</td>" in text
    assert '<p class="aside">an aside</p>' in text
    assert html_table(("name",), []) == ""


def test_a_starred_time_is_explained(tables):
    table = tables["op_roofline"].assign(is_correction_dominated=True)
    assert "* dominated by the profiler" in report_html(
        Findings(tables={"op_roofline": records(table)}), "", {}, PICTURES
    )


def test_an_energy_without_interval_or_split_says_the_total_alone(tables):
    known = {"energy_uj": 2e6, "energy_source": "given"}
    energy = {"energy_summary": dict.fromkeys(tables["energy_summary"]) | known}
    lines = closing_summary(Findings(documents=energy)).splitlines()
    assert lines[-2:] == ["ENERGY", "  energy     2.00 J per inference (given), no interval"]


def test_what_the_processor_counted_is_told_as_far_as_it_counts(tables):
    text = closing_summary(findings(tables))
    assert "  processor  2.03 instructions per cycle, 6.7 % cache misses\n" in text
    nothing = dict.fromkeys(("instructions_per_cycle", "cache_miss_share"))
    counters = tables["hardware_counters"] | nothing
    assert "processor " not in closing_summary(findings(tables, "latency_summary", hardware_counters=counters))


def test_the_notes_of_every_stage_endanger_something():
    """A stage that the view does not know would end it with a traceback."""
    stages = [stage for stage in STAGES.values() if stage.script != "06_plots.py"]
    assert [
        stage.script for stage in stages if not any(set(stage.writes) & set(made) for made in ENDANGERED.values())
    ] == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [("flat", "flat, from run 3"), ("warm-up", "after slower runs, from run 3"),
     ("slowdown", "after faster runs, from run 3")],
)  # fmt: skip
def test_a_steady_state_is_told_by_the_runs_before_it(kind, words):
    assert steady_text(latency_summary(steady_state=kind, steady_start_index=3)) == words
