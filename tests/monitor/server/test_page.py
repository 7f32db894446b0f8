"""The page in headless Chromium: what it shows, what it saves, who it lets in, and that it connects again."""

from __future__ import annotations

import csv
import json
import shutil
import struct

import pytest

for package in ("fastapi", "uvicorn", "websockets"):
    pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs requirements-dashboard-test.txt: make test-dashboard"
)

from tests.support.processes.live_server import LOOPBACK, TOKEN, Running  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)"),
]
LONG_MS = 60_000
ROUND = {"durations_us": [1500.0] * 400 + [9000.0] * 7, "figures": {"queue_depth_count": 3}}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("page"), is_attached=True) as running:
        yield running


@pytest.fixture
def opened(browser, server):
    """A function that opens the page, and afterwards checks that the console has no error."""
    contexts, errors = [], []

    def open_page(token=TOKEN, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(LONG_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: line.type == "error" and errors.append(line.text))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]) if "//" in request.url else None)
        page.goto(f"http://{LOOPBACK}:{server.port}/" + (f"#token={token}" if token else ""))
        return page

    hosts = set()
    for limits in (server.guard._strangers, server.guard._holders):
        limits._buckets.clear()  # the pages of all tests are of one address
    server.post(ROUND)
    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert hosts == {f"{LOOPBACK}:{server.port}"}  # nothing from elsewhere


def until(page, expression):
    """Wait until an expression is true; the page's own policy forbids what playwright has for that."""
    for _ in range(1200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def await_live(page):
    until(page, "document.getElementById('state').textContent.startsWith('live')")
    until(page, "document.querySelectorAll('figure:not([hidden]) canvas').length > 2")


def number(page, label):
    return page.locator("#numbers div", has=page.get_by_text(label, exact=True)).locator("dd").inner_text()


@pytest.mark.parametrize(
    "options",
    [
        {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
        {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
        {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    ],
    ids=["light", "dark", "phone"],
)
def test_the_figures_are_shown(opened, options):
    page = opened(**options)
    await_live(page)
    until(page, "document.body.textContent.includes('1.5 ms')")
    assert number(page, "p50") == "1.5 ms"
    assert number(page, "Waiting requests") == "3"
    assert number(page, "Power, W") == "unavailable"
    assert page.url.endswith("/")  # the token is no longer in the address
    assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is (options["color_scheme"] == "light")
    label = page.get_by_role("img", name="Latency: p50").get_attribute("aria-label")
    assert "p50 1.5 ms" in label


def test_a_wrong_token_asks_for_the_right_one(opened):
    page = opened(token="wrong" * 9)
    page.get_by_text("This token is not the server's.").wait_for()
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    await_live(page)
    assert not page.locator("#login").is_visible()


def test_without_a_token_nothing_is_shown(opened):
    page = opened(token="")
    page.locator("#login").wait_for()
    assert page.locator("#state").inner_text() == "a token is needed"
    assert "1.5 ms" not in page.locator("body").inner_text()


def test_pause_zoom_and_what_is_saved(opened, tmp_path):
    page = opened()
    await_live(page)
    until(page, "points.length > 15")
    page.get_by_role("button", name="Pause").click()
    tick, count = page.evaluate("[newest.tick, points.length]")
    until(page, f"newest.tick > {tick + 3}")  # ticks still come
    assert page.evaluate("points.length") == count
    with page.expect_download() as download:
        page.get_by_role("button", name="Save CSV").click()
    download.value.save_as(tmp_path / "saved.csv")
    rows = [*csv.DictReader((tmp_path / "saved.csv").open())]
    assert len(rows) == count
    assert {"time_s", "window_p50_us", "throughput_runs_per_s"} <= set(rows[0])
    assert float(rows[-1]["window_p50_us"]) == 1500
    page.get_by_role("button", name="Zoom in").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save CSV").click()
    download.value.save_as(tmp_path / "zoomed.csv")
    assert 0 < len([*csv.DictReader((tmp_path / "zoomed.csv").open())]) < count
    with page.expect_download() as download:
        page.get_by_role("button", name="Save PNG").click()
    download.value.save_as(tmp_path / "saved.png")
    head = (tmp_path / "saved.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    assert width > 200
    assert height > 600


def test_everything_can_be_reached_by_keyboard(opened):
    page = opened()
    await_live(page)
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    for name in ("range", "pause", "zoom-in", "zoom-out", "earlier", "later", "zoom-all", "csv", "png"):
        assert name in reached
    page.locator("#pause").focus()
    page.keyboard.press("Space")
    assert page.locator("#pause").get_attribute("aria-pressed") == "true"
    assert page.locator("#pause").text_content() == "Pause"  # "Go on, pressed" would be wrong


def test_the_roofline_stands_where_its_ceilings_are_known(opened, server):
    page = opened()
    await_live(page)
    assert not page.get_by_role("img", name="Roofline").is_visible()
    roof = {"peak_flop_per_s": 1e11, "memory_bytes_per_s": 1e10, "intensity_flop_per_byte": 4, "flop_per_s": 3e10}
    server.post({"figures": roof})
    until(page, "!roof.figure.hidden")
    label = page.get_by_role("img", name="Roofline").get_attribute("aria-label")
    assert label == "Roofline: 30GFLOP/s at 4 FLOP/byte, 75 % of the roof, which the memory sets"
    places, roofs, attained = page.evaluate("roof.plot.data.map((values) => [...values])")
    assert places == [0.5, 4, 10, 80]
    assert roofs == pytest.approx([5e9, 4e10, 1e11, 1e11])
    assert attained == [None, 3e10, None, None]


def test_the_longest_nodes_have_a_row_each(opened, server):
    nodes = [{"node": f"conv{place}", "op_type": "Conv", "share": 2.0**-place} for place in range(1, 15)]
    server.post({"nodes": [*nodes, {"node": "last", "share": 2.0**-14}]})
    page = opened()
    await_live(page)
    until(page, "document.querySelectorAll('#nodes tbody tr').length === 13")
    rows = page.locator("#nodes tbody tr").all_inner_texts()
    assert rows[0].split("\t")[:3] == ["conv1", "Conv", "50 %"]
    assert rows[-1].split("\t")[0] == "3 others"
    assert page.locator("#nodes meter").first.get_attribute("aria-label") == "50 %"
    assert page.evaluate("[...document.querySelectorAll('#nodes meter')].reduce((sum, bar) => sum + bar.value, 0)") == 1


def test_a_load_test_shows_what_it_offers(opened, server):
    page = opened()
    await_live(page)
    assert not page.locator("#numbers").get_by_text("Offered/s").is_visible()
    server.post({"figures": {"offered_runs_per_s": 42, "in_flight_count": 3}})
    until(page, "document.getElementById('numbers').innerText.includes('Offered/s')")
    assert number(page, "Offered/s") == "42"


def test_a_load_of_streams_shows_its_tokens(opened, server):
    page = opened()
    await_live(page)
    assert not page.locator("#numbers").get_by_text("Tokens/s").is_visible()
    server.post({"figures": {"output_tokens_per_s": 42.5, "inter_token_us": 23_500, "time_to_first_token_us": 2e6}})
    until(page, "document.getElementById('numbers').innerText.includes('Tokens/s')")
    assert [number(page, name) for name in ("Tokens/s", "First token", "Between tokens")] == ["42.5", "2 s", "23.5 ms"]
    assert page.get_by_text("Tokens per second", exact=True).is_visible()


def test_what_is_zoomed_can_be_moved_by_keyboard(opened):
    page = opened()
    await_live(page)
    until(page, "points.length > 15")
    page.locator("#pause").press("Enter")
    page.locator("#zoom-in").press("Enter")
    low, high = page.evaluate("zoom")
    page.locator("#earlier").press("Enter")
    moved = page.evaluate("zoom")
    assert moved[0] < low
    assert moved[1] - moved[0] == pytest.approx(high - low)
    for _ in range(9):
        page.locator("#later").press("Enter")
    assert page.evaluate("zoom[1] - points.at(-1).time") == pytest.approx(0, abs=1e-3)


def test_an_alarm_is_told(opened, server):
    page = opened()
    await_live(page)
    server.post({"figures": {"queue_depth_count": 1001}})
    until(page, "document.getElementById('alarms').textContent === 'Alarm: deep'")
    assert page.get_by_role("alert", name="Active alarms").is_visible()
    assert b'onnx_alarm_active{alarm="deep"} 1' in server.ask("/metrics")[1]
    server.post({"figures": {"queue_depth_count": 3}})
    until(page, "document.getElementById('alarms').textContent === ''")


def test_the_page_connects_again_after_a_restart(browser, tmp_path):
    first = Running(tmp_path, is_attached=True)
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(LONG_MS)
    with first:
        first.post(ROUND)
        page.goto(f"http://{LOOPBACK}:{first.port}/#token={TOKEN}")
        await_live(page)
        before = page.evaluate("newest.tick")
    until(page, "document.getElementById('state').textContent.startsWith('no connection')")
    with Running(tmp_path, is_attached=True, port=first.port) as second:
        second.post(ROUND)
        until(page, f"newest.tick < {before} || newest.tick > {before + 5}")
        await_live(page)
        assert json.loads(second.ask("/api/runs")[1])[0]["run_id"] == 2
    context.close()


def test_without_script_it_says_where_the_figures_are(browser, server):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"http://{LOOPBACK}:{server.port}/")
    assert "This page needs JavaScript" in page.locator("body").inner_text()
    context.close()
