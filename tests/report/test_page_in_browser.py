"""The pages in a real browser: no error, no request, and pointer, keys, legend, theme and paper work."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_toys import NASTY, taken, write_study

from ba3us import bench
from ba3us.bench.html_page import write_database_page
from ba3us.bench.jobs import execute

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def bench_html(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bench_page")
    study = bench.prepare(write_study(folder), methods="source-only,dann", seeds=2, options={"steps": 20})
    with bench.Database(folder / "b.sqlite") as database:
        for job in study.jobs:
            database.record(job, execute(job), next(d.labels for d in study.datasets if d.digest == job.data))
    return write_database_page(folder / "b.sqlite")


@pytest.fixture(scope="module", params=["run", "bench"])
def html(request, nasty_page) -> Path:
    return nasty_page if request.param == "run" else request.getfixturevalue("bench_html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open a page; whatever it complains of, asks for or pops up is in ``page.trouble``."""
    opened = []

    def visit(path: Path, **options: Any) -> Any:
        page = browser.new_page(**options)
        page.trouble = []
        page.on("console", lambda message: page.trouble.append(message.text))
        page.on("pageerror", lambda error: page.trouble.append(str(error)))
        page.on("dialog", lambda dialog: (page.trouble.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: _note(page, request.url))
        page.goto(path.as_uri())
        opened.append(page)
        return page

    yield visit
    for page in opened:
        page.close()


def _note(page: Any, url: str) -> None:
    if not url.startswith(("file:", "data:")) or (url.startswith("file:") and not url.endswith(".html")):
        page.trouble.append(url)


def until(page: Any, expression: str) -> None:
    """Wait until it is true; playwright's own wait evaluates strings later, which the page's policy forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


def chart(page: Any, title: str) -> Any:
    return page.locator("figure.chart", has=page.locator("figcaption", has_text=re.compile(f"^{title}$")))


def place(figure: Any, number: int = 0) -> tuple[float, float]:
    """Where the middle of a chart's point is in the window."""
    return figure.evaluate(
        """(figure, number) => {
            const points = figure.querySelectorAll(".plot svg :is(.dot, .heat) :is(use, path):not(defs *)");
            const box = points[number].getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }""",
        number,
    )


def tips_of(html: Path, title: str) -> list[str]:
    """Tooltips of a chart in the order of the file."""
    page = taken(html)
    return dict(zip(page.texts("figcaption"), page.tips()))[title]


def tip(figure: Any) -> str:
    return figure.locator(".tip").text_content()


# --- nothing goes wrong -------------------------------------------------------------------------------------


def test_a_page_opens_without_a_word_or_a_request(visit, html):
    page = visit(html)
    page.mouse.wheel(0, 20000)
    page.wait_for_timeout(100)
    assert page.trouble == []
    assert page.locator("main section").count() >= 4


def test_the_browser_refuses_to_load_anything(visit, html):
    page = visit(html)
    directive = page.evaluate(
        """() => new Promise((told) => {
            addEventListener("securitypolicyviolation", (event) => told(event.violatedDirective));
            fetch("https://example.org/").catch(() => setTimeout(() => told("nothing"), 500));
        })"""
    )
    assert directive == "connect-src"


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_needs_no_sideways_scrolling(visit, html, width):
    page = visit(html, viewport=PHONE | {"width": width})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for button in page.locator(".unfold").all():
        button.click()
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_names_are_shown_as_they_are(visit, nasty_page):
    page = visit(nasty_page)
    shown = page.locator("#classes tbody th").all_text_contents()
    assert sorted(shown) == sorted(NASTY) and page.trouble == []


# --- pointer and keys ---------------------------------------------------------------------------------------


def test_a_pointer_is_answered_where_a_point_is(visit, nasty_page):
    page = visit(nasty_page)
    for title in ("Class proportions", "PCA", "Confusion matrix"):
        figure, tips = chart(page, title), tips_of(nasty_page, title)
        figure.locator(".plot").scroll_into_view_if_needed()
        x, y = place(figure)
        page.mouse.move(x, y)
        assert tip(figure) in tips and figure.locator(".at").count() == 1
        page.mouse.move(x, y + 2000)
        page.mouse.move(2, 2)
        assert tip(figure) == ""


def test_a_tip_stays_on_a_phone(visit, nasty_page):
    page = visit(nasty_page, viewport=PHONE)
    figure = chart(page, "t-SNE")
    figure.locator(".plot").focus()
    for key in ("Home", "End"):
        page.keyboard.press(key)
        box = figure.locator(".tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_legend_shows_and_hides(visit, nasty_page):
    page = visit(nasty_page)
    figure = chart(page, "Class proportions")
    key, other = figure.locator(".key").nth(0), figure.locator(".key").nth(1)
    line = figure.locator('.line[data-group="s0"]')
    key.click()
    assert key.get_attribute("aria-pressed") == "false" and not line.is_visible()
    hidden = {text for text in tips_of(nasty_page, "Class proportions") if text.startswith(key.inner_text())}
    page.mouse.move(*place(figure))
    assert tip(figure) not in hidden  # what is hidden does not answer
    key.click()
    assert line.is_visible()
    other.dblclick()
    assert not line.is_visible() and figure.locator("g.line:visible").count() == 1
    other.dblclick()
    assert figure.locator("g.line:visible").count() == figure.locator(".key").count()


def test_a_domain_can_be_hidden_and_colours_changed(visit, nasty_page):
    page = visit(nasty_page)
    figure = chart(page, "PCA")
    fill = "group => getComputedStyle(group).fill"
    by_class = figure.locator("g.target").first.evaluate(fill)
    page.get_by_role("radio", name="source and target").check()
    by_domain = {group.evaluate(fill) for group in figure.locator("g.target").all()}
    assert len(by_domain) == 1 and by_domain != {by_class}
    assert not figure.locator(".key.of-class").first.is_visible()
    figure.locator(".key", has_text="target").click()
    assert figure.locator("g.target:visible").count() == 0
    assert figure.locator("g.source:visible").count() > 0


def test_marks_of_a_benchmark_answer_too(visit, bench_html):
    page, title = visit(bench_html), "Points above or below source-only"
    figure = chart(page, title)
    figure.locator(".plot").scroll_into_view_if_needed()
    x, y = place(figure)
    page.mouse.move(x, y)
    text = tip(figure)
    assert text in tips_of(bench_html, title)
    figure.locator(".key").first.click()
    page.mouse.move(x + 1, y)
    assert tip(figure) != text


def test_everything_is_reached_by_the_tab_key_and_seen_to_be(visit, nasty_page):
    page = visit(nasty_page)
    reached = []
    for _ in range(200):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => {
                const one = document.activeElement, style = getComputedStyle(one);
                const name = one.id || one.getAttribute("href") || one.className || one.tagName;
                return [name, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        if name == "BODY":
            break
        assert outline, f"{name} has the focus, and nothing shows it"
        reached.append(name)
    assert reached[:2] == ["#content", "theme"] and "#classes" in reached[2:4]
    assert reached.count("plot") == page.locator(".plot").count()
    assert sum("key" in name.split() for name in reached) == page.locator(".key:visible").count()
    assert reached.index("#run") < reached.index("plot")  # in the order of the page


def test_a_table_wider_than_the_screen_can_be_moved_by_keys(visit, bench_html):
    wide, narrow = (visit(bench_html, viewport=PHONE | {"width": width}) for width in (1280, 390))
    assert wide.locator(".table[tabindex]").count() == 0
    table = narrow.locator(".table[tabindex]").first
    table.focus()
    narrow.keyboard.press("ArrowRight")
    until(narrow, "document.activeElement.scrollLeft > 0")
    narrow.set_viewport_size({"width": 1280, "height": 844})
    until(narrow, "document.querySelectorAll('.table[tabindex]').length === 0")


def test_the_skip_link_leads_to_the_content(visit, html):
    page = visit(html)
    page.keyboard.press("Tab")
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_arrow_keys_walk_over_the_points(visit, nasty_page):
    page = visit(nasty_page)
    figure = chart(page, "Entropy of the predictions")
    figure.locator(".plot").focus()
    texts = tips_of(nasty_page, "Entropy of the predictions")
    page.keyboard.press("ArrowRight")
    assert tip(figure) == texts[0]
    page.keyboard.press("ArrowRight")
    assert tip(figure) == texts[1]
    page.keyboard.press("ArrowLeft")
    assert tip(figure) == texts[0]
    page.keyboard.press("Escape")
    assert tip(figure) == ""


# --- light, dark, paper, and no script ----------------------------------------------------------------------


def paper(page: Any) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_page_follows_the_system_and_the_button(visit, html):
    light, dark = (visit(html, color_scheme=scheme) for scheme in ("light", "dark"))
    assert paper(light) == "rgb(255, 255, 255)" != paper(dark)
    before = paper(dark)
    dark.locator("#theme").click()
    assert paper(dark) == paper(light)
    dark.locator("#theme").click()
    assert paper(dark) == before


def test_paper_is_light_and_has_everything(visit, nasty_page):
    page = visit(nasty_page, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert paper(page) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible() and not page.locator("#theme").is_visible()
    assert len(page.pdf()) > 10_000
    assert page.locator("details:not([open])").count() == 0


def test_without_script_everything_can_be_read(browser, nasty_page):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(nasty_page.as_uri())
    assert not page.locator("#theme").is_visible()
    assert page.locator("#classes tbody th").last.is_visible()
    assert page.locator("figure.chart svg g.line").first.is_visible()
    context.close()


def test_a_long_table_unfolds(visit, tmp_path, folder):
    from ba3us.report.page import Page, Section, Table, write_page

    rows = [[f"row {i}", "x"] for i in range(40)]
    long = Section("s", "S", [Table("Long", ["a", "b"], rows)])
    write_page(Page("t", "u", [long]), tmp_path / "long.html")
    page = visit(tmp_path / "long.html")
    last, button = page.get_by_text("row 39"), page.locator(".unfold")
    assert not last.is_visible() and button.get_attribute("aria-expanded") == "false"
    button.click()
    assert last.is_visible() and button.get_attribute("aria-expanded") == "true"
