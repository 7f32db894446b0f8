"""The report: every point and bar says which node it is, blocks hold all nodes, and the page stays small."""

import re
import shutil
import subprocess
from itertools import pairwise
from json import loads

import pandas as pd
import pytest

from common.artifacts.catalogue import PICTURES
from common.artifacts.frames import records
from common.view.findings import Findings
from common.view.marks import Marks, mark_id, marked
from common.view.node_labels import modules_of
from common.view.report.blocks import MOST_BLOCKS, Block, blocks_of, edges_between, levels
from common.view.report.gallery import draw_all
from common.view.report.head import key_figures
from common.view.report.page import MOST_BYTES, report_html
from common.view.style import render
from tests.support.tables.view import all_tables, many_nodes

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MARKED = re.compile(r'<(?:path|use) data-n="([\d ]+)"([^>]*)><title>([^<]*)</title>')


def findings_of(tables):
    frames = {name: records(table) for name, table in tables.items() if isinstance(table, pd.DataFrame)}
    return Findings(frames, {name: table for name, table in tables.items() if isinstance(table, dict)})


@pytest.fixture(scope="module")
def found():
    return findings_of(all_tables())


@pytest.fixture(scope="module")
def pictures(found):
    marks = found.marks()
    return {name: render(figure, marks)[".svg"] for name, figure in draw_all(found).items()}


def left_of(attributes):
    """Left end of a part of a drawing."""
    if at := re.search(r' ?\bx="([\d.]+)"', attributes):
        return float(at[1])
    return min(float(x) for x, _ in re.findall(r"(-?[\d.]+) (-?[\d.]+)", re.search(r' ?\bd="([^"]*)"', attributes)[1]))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [None, many_nodes(211)])
def test_points_of_the_roofline_are_the_nodes_at_their_intensity(nodes):
    """Points from left to right are nodes by rising intensity, whatever order and groups they are drawn in."""
    found = findings_of(all_tables(nodes))
    roofline, numbers = pd.DataFrame(found.tables["op_roofline"]).set_index("executed_node"), found.numbers()
    drawn = MARKED.findall(render(draw_all(found)["roofline"], found.marks())[".svg"].decode())
    names = {number: name for name, number in numbers.items()}
    known = roofline[(roofline["arithmetic_intensity_flop_per_byte"] > 0) & (roofline["attained_flop_per_s"] > 0)]
    assert sorted(names[int(number)] for number, _, _ in drawn) == sorted(known.index)
    centres = {
        names[int(number)]: (left_of(part) + right_of(part)) / 2 if " d=" in f" {part}" else left_of(part)
        for number, part, _ in drawn
    }
    by_place = sorted(centres, key=centres.get)
    intensities = known.loc[by_place, "arithmetic_intensity_flop_per_byte"].to_numpy(float)
    assert (intensities[1:] >= intensities[:-1] * 0.999).all()


def right_of(attributes):
    return max(float(x) for x, _ in re.findall(r"(-?[\d.]+) (-?[\d.]+)", re.search(r' ?\bd="([^"]*)"', attributes)[1]))


@pytest.mark.slow
def test_bars_of_the_schedule_are_the_nodes_at_their_start(found, pictures):
    """In the upper lane, bars from left to right are the nodes in the order of execution."""
    parts = MARKED.findall(pictures["schedule"].decode())
    tops = [re.search(r"d=\"M [\d.]+ ([\d.]+)", part)[1] for _, part, _ in parts]
    lane = [(left_of(part), int(number)) for top, (number, part, _) in zip(tops, parts, strict=True) if top == tops[0]]
    order = sorted(found.tables["op_schedule"], key=lambda row: row["execution_index"])
    assert [number for _, number in sorted(lane)] == [found.numbers()[row["executed_node"]] for row in order]


@pytest.mark.slow
def test_one_node_is_marked_in_every_picture_and_table(found, pictures):
    key = found.key_nodes()[0]
    number = str(found.numbers()[key.name])
    page = report_html(found, "", pictures, PICTURES)
    shown = [
        name
        for kind in ("figure", "section")
        for name, part in re.findall(rf'<{kind} id="([a-z-]+)">(.*?)</{kind}>', page, re.DOTALL)
        if any(number in numbers.split() for numbers in re.findall(r'data-n="([\d ]+)"', part))
    ]
    lit = {"graph", "roofline", "energy", "schedule", "nodes", "energy-table"}
    assert lit <= set(shown)
    row = re.search(rf'<tr data-n="{number}">(.*?)</tr>', page.partition('<section id="nodes">')[2])[1]
    assert f"<td>{key.label}</td>" in row and row.endswith(f"{key.name}</td>")
    titles = {title for numbers, _, title in MARKED.findall(pictures["roofline"].decode()) if numbers == number}
    assert len(titles) == 1 and titles.pop().startswith(f"{key.label}: ")


def test_items_of_the_plan_light_up_their_nodes_and_unknown_names_nothing():
    marks = Marks({"a/b": [7], "G1": [7, 3]}, {7: "b <x>", 3: "c"})
    names = [["a/b"], ["gone"], ["G1", "a/b"]]
    parts = '<path d="M 0 0"/>\n' * 3
    text = marked(f' <g id="{mark_id(names)}">\n{parts} </g>\n', marks)
    assert re.findall(r'data-n="([\d ]+)"', text) == ["7", "7 3"]
    assert "<title>b &lt;x&gt;</title>" in text and "<title>2 nodes: b &lt;x&gt;, c</title>" in text
    assert text.count("<path") == 3 and "nodes:" not in text.replace("2 nodes:", "")
    with pytest.raises(ValueError, match="fewer parts"):
        marked(f' <g id="{mark_id(names)}">\n<path d="M 0 0"/>\n </g>\n', marks)


def test_blocks_hold_every_node_once_and_all_of_the_time(found):
    roofline = found.tables["op_roofline"]
    times = {row["executed_node"]: row["node_latency_us"] for row in roofline if row["row_kind"] != "gap"}
    chosen = {*[*times][::2]}
    blocks = blocks_of(roofline, modules_of(roofline), chosen)
    assert sorted(name for block in blocks for name in block.nodes) == sorted(times)
    assert sum(block.latency_us for block in blocks) == pytest.approx(sum(times.values()))
    assert {"layer1.0", "layer4.2", "conv1"} <= {block.name for block in blocks}
    for block in blocks:
        on_card = sum(times[name] for name in block.nodes if name in chosen)
        assert block.card_share == pytest.approx(on_card / block.latency_us)


@pytest.mark.slow
def test_a_model_is_split_into_its_modules_although_a_node_outside_takes_most_of_the_time():
    nodes = many_nodes(101)
    roofline = all_tables(nodes)["op_roofline"]
    share = roofline["latency_share"].where(roofline["row_kind"] == "gap", 0.08 / 101)
    modules = {name: ("m", *name.strip("/").split("/")[:-1]) for name in roofline["executed_node"]}
    first = roofline["executed_node"].iloc[0]
    roofline = roofline.assign(latency_share=share.where(roofline["executed_node"] != first, 0.9))
    blocks = blocks_of(records(roofline), modules | {first: ()}, None)
    assert blocks[0].nodes == (first,) and blocks[0].name == "outside the modules"
    assert len(blocks) == 1 + 26


@pytest.mark.slow
def test_a_model_without_modules_is_shown_in_a_few_stretches():
    nodes = [{**node, "name": f"node_{index}"} for index, node in enumerate(many_nodes(307))]
    roofline = all_tables(nodes)["op_roofline"].assign(source_nodes=[[]] * 308, op_types=[[]] * 308)
    blocks = blocks_of(records(roofline), {name: (name,) for name in roofline["executed_node"]}, None)
    assert len(blocks) <= MOST_BLOCKS
    assert sum(len(block.nodes) for block in blocks) == 307
    assert blocks[0].name.startswith("node_0 … node_") and blocks[0].card_share is None


def test_a_tensor_between_two_blocks_counts_once_and_levels_follow_what_is_read():
    blocks = [Block(name, tuple(name), 1.0, 0.1, "", None) for name in ("ab", "cd", "ef")]
    rows = [("t", "a", "c", 5), ("t", "b", "d", 5), ("u", "a", "e", 7), ("v", "c", "d", 9), ("in", None, "a", 11)]
    edges = pd.DataFrame(rows, columns=["tensor", "producer", "consumer", "tensor_bytes"])
    assert edges_between(blocks, records(edges)) == {(0, 1): 5.0, (0, 2): 7.0}
    assert levels(4, [(0, 1), (0, 2), (1, 3), (3, 1)]) == [0, 1, 1, 2]


def test_the_head_has_the_figures_that_decide(found):
    figures = {figure.name: figure for figure in key_figures(found)}
    latency = found.documents["latency_summary"]
    assert figures["Latency, median"].value.endswith(" ms")
    assert f"{latency['sample_count']} unprofiled runs" in figures["Latency, median"].detail
    assert {"Most time", "Slowest node", "Parallelism", "Energy of an inference", "Offloading: latency"} <= set(figures)
    assert re.fullmatch(r"[\d.]+ % of the latency, \d+ % of the roof, \w+-bound", figures["Most time"].detail)
    offload = figures["Offloading: latency"]
    assert offload.value == "1.27x, 90 % within 0.881 to 1.56"
    assert offload.detail == "undecided: probability 0.86"
    page = report_html(found, "", {}, PICTURES)
    for figure in figures.values():
        assert f'<a href="#{figure.section}">' in page


def test_without_a_share_of_the_roof_the_head_claims_no_bound(found):
    unstable = [row | {"roof_share": None, "roof_share_reason": "unstable"} for row in found.tables["op_roofline"]]
    tables = {**found.tables, "op_roofline": unstable}
    figures = key_figures(Findings(tables=tables, documents=found.documents))
    most = next(figure for figure in figures if figure.name == "Most time")
    assert re.fullmatch(r"[\d.]+ % of the latency", most.detail)


@pytest.mark.slow
def test_a_large_model_keeps_the_page_small_and_says_what_it_leaves_out():
    found = findings_of(all_tables(many_nodes(4_001)))
    svg = b'<svg><path d="' + b"M 1.5 2.5 " * 100_000 + b'"/></svg>'
    page = report_html(found, "", {"roofline": svg}, PICTURES)
    assert len(page.encode()) <= MOST_BYTES < 3_000_000
    assert re.search(r"\d+ of 4001 rows; all of them in op_roofline.csv", page)


def test_the_page_has_one_main_landmark_and_no_heading_skips_a_level(found, pictures):
    """axe-core's rules landmark-one-main, region and heading-order."""
    page = report_html(found, "", pictures, PICTURES)
    body = page.partition("<body>")[2]
    assert body.count("<main>") == 1 and body.lstrip().startswith("<main>")
    assert re.fullmatch(r"\s*(<script>.*</script>\s*)?</body>\s*</html>\s*", body.partition("</main>")[2], re.DOTALL)
    levels = [int(level) for level in re.findall(r"<h(\d)", body.partition("<script>")[0])]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


LARGE_DRIVER = """
<script>
const press = (at, key) => at.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
const lit = () => document.querySelectorAll(".lit").length;
const out = {};
out.stops = [...document.querySelectorAll("*")].filter(e => e.tabIndex >= 0 && e.getClientRects().length).length;
out.widgets = document.querySelectorAll("a, button, input, summary, tr[data-n], .block").length;
const blocks = [...document.querySelectorAll(".block")];
blocks[0].focus(); press(blocks[0], "ArrowDown"); out.second = document.activeElement === blocks[1];
press(blocks[1], "End"); out.last = document.activeElement === blocks.at(-1);
out.stop = blocks.filter(block => block.tabIndex === 0).length;
press(document.activeElement, "Enter"); out.pinned = [blocks.at(-1).getAttribute("aria-pressed"), lit() > 0];
press(document.body, "Escape"); out.released = [blocks.at(-1).getAttribute("aria-pressed"), lit()];
const rows = [...document.querySelectorAll("#nodes tbody tr")];
const drawing = document.querySelector(".blocks svg");
drawing.focus(); out.drawing = document.activeElement === drawing;
const field = document.querySelector("#nodes input");
field.value = rows[7].cells[0].textContent; field.dispatchEvent(new Event("input"));
out.filtered = rows.filter(row => !row.hidden && row.tabIndex === 0).length;
field.value = ""; field.dispatchEvent(new Event("input"));
const [first, next] = document.querySelectorAll("#nodes thead button");
first.focus(); press(first, "ArrowRight"); out.header = document.activeElement === next;
const whole = document.querySelector("#roofline [data-n]");
const everywhere = [...document.querySelectorAll("[data-n]")].flatMap(place => place.dataset.n.split(" "));
whole.dataset.n = [...new Set(everywhere)].join(" ");
out.related = document.querySelectorAll("[data-n]").length;
whole.dispatchEvent(new MouseEvent("click", {bubbles: true}));
out.lit = lit();
document.body.dataset.result = JSON.stringify(out);
</script>
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
def test_a_graph_of_3000_nodes_is_walked_by_keyboard_and_one_click_lights_what_is_seen(tmp_path):
    large = findings_of(all_tables(many_nodes(3_000)))
    drawn = {name: render(draw_all(large)[name], large.marks())[".svg"] for name in ("roofline", "schedule")}
    out = driven(report_html(large, "", drawn, PICTURES), LARGE_DRIVER, tmp_path)
    assert out["widgets"] > 1_000 and out["stops"] < 80
    assert [out[name] for name in ("second", "last", "stop", "filtered", "header")] == [True, True, 1, 1, True]
    assert not out["drawing"]  # it is no tab stop beside its blocks
    assert (out["pinned"], out["released"]) == (["true", True], ["false", 0])
    assert out["related"] > 3_000 and 0 < out["lit"] <= 150


def driven(page, driver, folder):
    """Return what a script leaves that runs behind those of the page."""
    file = folder / "report.html"
    file.write_text(page.replace("</body>", f"{driver}</body>"), encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    done = subprocess.run([BROWSER, *flags, file.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    return loads(re.search(r'data-result="([^"]*)"', done.stdout)[1].replace("&quot;", '"'))


DRIVER = """
<script>
const rows = () => [...document.querySelectorAll("#nodes tbody tr")].filter(row => !row.hidden);
const out = {unsorted: rows().length};
const [, , time] = document.querySelectorAll("#nodes th button");
time.click(); time.click();
out.fastest = rows()[0].cells[2].textContent;
time.click();
out.slowest = rows()[0].cells[0].textContent;
const field = document.querySelector("#nodes input");
field.value = "layer1.0 conv"; field.dispatchEvent(new Event("input"));
out.filtered = rows().map(row => row.cells[0].textContent).sort();
const point = document.querySelector("#roofline [data-n]");
point.dispatchEvent(new MouseEvent("click", {bubbles: true}));
out.lit = [...document.querySelectorAll(".lit")].map(lit => lit.closest("figure, section").id);
out.panel = document.querySelector("#shown b").textContent;
out.title = point.querySelector("title").textContent;
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
out.after = document.querySelectorAll(".lit").length;
document.body.dataset.result = JSON.stringify(out);
</script>
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
def test_a_browser_sorts_filters_and_lights_up_a_node(found, pictures, tmp_path):
    out = driven(report_html(found, "", pictures, PICTURES), DRIVER, tmp_path)
    nodes = [row for row in found.tables["op_roofline"] if row["row_kind"] != "gap"]
    labels = found.labels()
    assert out["unsorted"] == len(nodes)
    assert out["slowest"] == found.key_nodes()[0].label
    assert out["fastest"].startswith("23.0 µs")
    named = [row["executed_node"] for row in nodes if row["op_type"] == "Conv"]
    wanted = sorted(labels[name] for name in named if "layer1.0" in name)
    assert out["filtered"] == wanted
    assert {"graph", "roofline", "schedule", "nodes"} <= set(out["lit"])
    assert out["title"].startswith(out["panel"])
    assert out["after"] == 0
