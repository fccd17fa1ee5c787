#!/usr/bin/env python3
"""Opens every page of the built book in a real browser, and says what is wrong with it.

    book/browse.py [--built target/book] [--pictures DIR]     the book's pages; with pictures of each
    book/browse.py --broken                                   a page with every fault, each of which must be found

The browser is Chromium without a window, as wide as a phone. A page must be silent on the console, show its pictures and
formulas, ask the network for nothing, need no sideways scroll, and have no broken link. Needs python3-selenium,
chromium and chromium-driver (Debian's names).
"""

import argparse
import base64
import pathlib
import re
import shutil
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SOURCES = pathlib.Path(__file__).resolve().parent / "src"

# A phone's width, in CSS pixels.
PHONE = 400

# What a page says about itself. A listing may scroll inside its own box, but nothing around the page's text may: that box
# and all around it, of which mdBook lets one scroll, are asked by how much their content is too wide.
LOOK = """
    const all = selector => [...document.querySelectorAll(selector)];
    const low = element => element.getBoundingClientRect().height < 4;
    const wide = [];
    for (let e = document.querySelector('main'); e; e = e.parentElement) wide.push(e.scrollWidth - e.clientWidth);
    return {
        over: Math.max(...wide),
        window: innerWidth,
        images: all('img').filter(i => !i.complete || i.naturalWidth == 0).map(i => i.src),
        formulas: all('main math').length,
        flat: all('main math').filter(low).map(m => m.textContent),
        fractions: all('main mfrac').filter(f => f.getBoundingClientRect().height < 20).map(f => f.textContent),
        pictures: all('main svg.figure').filter(low).length,
        links: all('main a[href]').map(a => a.href),
        ids: all('[id]').map(e => e.id),
        loaded: performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith('file:')),
        text: all('main')[0].innerText,
    };"""


def start(width):
    options = webdriver.ChromeOptions()
    for argument in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
                     "disable-background-networking", "disable-component-update", f"window-size={max(width, 500)},1000"):
        options.add_argument(f"--{argument}")
    if width == PHONE:
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": {"width": width, "height": 800, "pixelRatio": 2}})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = shutil.which("chromedriver") or sys.exit("error: no chromedriver\nhelp: apt install chromium chromium-driver")
    browser = webdriver.Chrome(service=Service(driver), options=options)
    # Only a hang takes this long.
    browser.set_page_load_timeout(60)
    return browser


def formulas(markdown):
    """How many formulas a page's source has: `$...$` and `$$...$$` outside of code."""
    prose = re.sub(r"^ *(```|~~~).*?^ *\1", "", markdown, flags=re.MULTILINE | re.DOTALL)
    marked = re.finditer(r"(`+).*?\1|(\$+).*?\2", prose, re.DOTALL)
    return sum(found.group(2) is not None for found in marked)


def faults(look, console, markdown):
    """What is wrong with one page."""
    found = [f"on the console: {entry['message']}" for entry in console if entry["level"] in ("SEVERE", "WARNING")]
    if look["formulas"] != formulas(markdown):
        found.append(f"{look['formulas']} formulas of {formulas(markdown)}")
    if look["over"] > 0 or look["window"] != PHONE:
        found.append(f"{look['over']} pixels too wide for a window of {look['window']}")
    if look["pictures"]:
        found.append(f"{look['pictures']} drawings are not drawn")
    for kind, what in (("images", "a missing image"), ("flat", "a formula that is not drawn"),
                       ("fractions", "a fraction in one line"), ("loaded", "asked of the network")):
        found += [f"{what}: {which}" for which in look[kind]]
    return found + [f"{rest} is visible" for rest in ("$$", "\\frac", "{{#", "**") if rest in look["text"]]


def picture(browser, path):
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(shot["data"]))


def browse(built, sources, pictures=None):
    """What is wrong with the pages in the folder `built`, whose Markdown is in `sources`."""
    pages = {source.stem: (built / source.stem).with_suffix(".html").resolve().as_uri()
             for source in sorted(sources.glob("*.md")) if source.stem != "SUMMARY"}
    if not pages or not built.is_dir():
        sys.exit(f"error: no book in {built}\nhelp: mdbook build book")
    wrong, ids, links = [], {}, []
    with start(PHONE) as browser:
        for page, url in pages.items():
            browser.get(url)
            look = browser.execute_script(LOOK)
            markdown = (sources / f"{page}.md").read_text()
            wrong += [f"{page}: {what}" for what in faults(look, browser.get_log("browser"), markdown)]
            ids[url] = {"", *look["ids"]}
            links += [(page, link) for link in look["links"]]
            if pictures:
                picture(browser, pictures / f"{page}-phone.png")
    for page, link in links:
        file, _, place = link.partition("#")
        if not (place in ids[file] if file in ids else link.startswith("https://")):
            wrong.append(f"{page}: a link to {link}, which is not there")
    if pictures:
        with start(1280) as browser:
            for page, url in pages.items():
                browser.get(url)
                browser.execute_script("localStorage.setItem('mdbook-theme', 'navy')")
                browser.get(url)
                picture(browser, pictures / f"{page}-dark.png")
    return wrong


# A page with every fault, and one like it with none.
BROKEN = """<meta name=viewport content='width=device-width'><link rel=icon href='data:,'><main style='{style}'>
<p>{text} <a href='{link}'>a link</a> <a href='good.html#place'>one</a> <a href='https://doc.rust-lang.org'>one more</a>
<img src='{image}'><math><mfrac style='{low}'><mn>1</mn><mn>2</mn></mfrac></math><math style='{flat}'><mi>x</mi></math>
<svg class=figure id=place width=9 height={height}></svg><script>{script}</script></main>"""
GOOD = dict(style="", text="", link="#place", low="font-size:40px", flat="", height=9, script="",
            image="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
BAD = dict(style="width:900px", text="$$ \\frac {{#include x}} **", link="nowhere.html", low="display:none",
           flat="display:block;height:1px;overflow:hidden", height=1, image="none.png",
           script="console.error('loud'); fetch('http://127.0.0.1:9/').catch(() => 0)")
FOUND = ["on the console: .*loud", "2 formulas of 3", r"\d+ pixels too wide", "1 drawings are not drawn",
         "a missing image: .*none.png", "a formula that is not drawn: x", "a fraction in one line: 12",
         "asked of the network: http://127.0.0.1:9/", r"\$\$ is visible", r"\\frac is visible", "{{# is visible",
         r"\*\* is visible", "a link to .*nowhere.html, which is not there"]


def broken():
    """What was not found on a page that has every fault, or was found on one that has none."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for page, values, markdown in (("good", GOOD, "$1$ `$` $$x$$\n```\n$ sh\n```\n"), ("bad", BAD, "$1$ $x$ $y$")):
            html = re.sub(r"\{(\w+)\}", lambda found: str(values[found.group(1)]), BROKEN)
            (folder / f"{page}.html").write_text(f"<!doctype html>{html}")
            (folder / f"{page}.md").write_text(markdown)
        found = browse(folder, folder)
    missed = [f"not found: {what}" for what in FOUND if not any(re.match(f"bad: {what}", each) for each in found)]
    return missed + [each for each in found if each.startswith("good: ")]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--built", type=pathlib.Path, default=SOURCES.parent.parent / "target/book")
    arguments.add_argument("--pictures", type=pathlib.Path, metavar="DIR")
    arguments.add_argument("--broken", action="store_true")
    given = arguments.parse_args()
    wrong = broken() if given.broken else browse(given.built, SOURCES, given.pictures)
    sys.exit("\n".join(wrong) if wrong else print("every page is as it should be"))


if __name__ == "__main__":
    main()
