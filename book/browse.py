#!/usr/bin/env python3
"""Opens every page of the built book in a real browser, and says what is wrong with it.

    book/browse.py [--built target/book] [--pictures DIR] [PAGE...]     the book's pages, or those whose names begin so; with pictures
    book/browse.py --broken                                             a page with every fault, each of which must be found

The browser is Chromium without a window, as wide as a phone, and then as a laptop: there a lab's first figure is near its
beginning, and no output is wider than its column. A page must be silent on the console, show its pictures and
formulas, ask the network for nothing, need no sideways scroll, and have no broken link. An interactive figure must
compute what the library computes, obey keys alone, show the focus, and keep its letters readable and inside. If the
reader asks for less motion, nothing moves. Without scripts there is a static picture. Each slide fits into its 16:9, and arrows
turn slides alone. What follows a question is folded until the reader answers or passes on, and opens for a link, a search and the
printer. A listing in Rust with its twin in PyTorch has two tabs, which obey clicks and arrows; other pages keep the choice, and the
printer and a page without scripts have both. Needs python3-selenium, chromium and chromium-driver (Debian's names), and cargo for the library's numbers.
"""

import argparse
import base64
import concurrent.futures
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

SOURCES = pathlib.Path(__file__).resolve().parent / "src"

# A phone's width, in CSS pixels, and a laptop's. A lab's first figure begins at most so far down there.
PHONE = 360
LAPTOP = 1280
FIRST = 1300

# What a page says about itself. A listing may scroll inside its own box, but nothing around the page's text may: that box
# and all around it, of which mdBook lets one scroll, are asked by how much their content is too wide.
LOOK = """
    const all = selector => [...document.querySelectorAll(selector)];
    const height = element => element.getBoundingClientRect().height;
    const low = element => height(element) < 4;
    const wide = [];
    for (let e = document.querySelector('main'); e; e = e.parentElement) wide.push(e.scrollWidth - e.clientWidth);
    // In code, marks of Markdown mean something else.
    const prose = all('main')[0].cloneNode(true);
    prose.querySelectorAll('pre, code, script, style').forEach(code => code.remove());
    return {
        over: Math.max(...wide),
        window: innerWidth,
        images: all('img').filter(i => !i.complete || i.naturalWidth == 0).map(i => i.src),
        formulas: all('main math').length,
        flat: all('main math').filter(low).map(m => m.textContent),
        sums: all('.formula math > munderover > mo:first-child, .formula math > munder > mo:first-child')
            .filter(sign => sign.textContent === '∑' && height(sign) < 1.5 * parseFloat(getComputedStyle(sign.closest('math')).fontSize)).map(sign => sign.closest('math').textContent),
        fractions: all('main mfrac').filter(f => f.getBoundingClientRect().height < 20).map(f => f.textContent),
        pictures: all('main svg.figure').filter(low).length,
        // A link in a picture has no address of its own.
        links: all('main a[href]').map(a => new URL(a.getAttribute('href'), location).href),
        ids: all('[id]').map(e => e.id),
        loaded: performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith('file:')),
        text: all('main')[0].innerText,
        prose: prose.textContent,
    };"""


# On a laptop: where the first figure begins, the outputs that do not fit into their column, and the cells of a table in which a
# number does not stand in one line.
LAYOUT = """
    const figure = document.querySelector('main figure');
    const wide = [...document.querySelectorAll('main pre > code:is(.language-text, .output)')]
        .filter(code => code.scrollWidth > code.clientWidth + 1);
    // An exponent and a word in bold begin a few pixels higher or lower, in the same line. A list of numbers may go on.
    const lines = cell => {
        const all = document.createRange();
        all.selectNodeContents(cell);
        const tops = [...all.getClientRects()].map(line => line.top);
        return cell.textContent.includes(', ') ? 1 : 1 + Math.floor((Math.max(...tops) - Math.min(...tops)) / 14);
    };
    const numbers = [...document.querySelectorAll('main td')].filter(cell => /^\d[\d.,() -]*$/.test(cell.textContent.trim()));
    return {
        split: numbers.filter(cell => lines(cell) > 1).map(cell => cell.textContent),
        first: figure ? figure.getBoundingClientRect().top + scrollY : null,
        wide: wide.map(code => code.textContent.split('\\n')[0]),
    };"""


# What keeps some readers out: links without a name or too near to their ground in a theme (4.5 to 1 is WCAG's least), and a sidebar
# before the text without a way past it.
ACCESS = """
    const all = selector => [...document.querySelectorAll(selector)];
    const named = link => link.textContent.trim() || link.title || link.ariaLabel || link.querySelector('svg, img');
    const found = all('a[href]').filter(link => !named(link)).map(link => `a link without a name: ${link.getAttribute('href')}`);
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => {
        const [r, g, b] = numbers(colour).map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = element => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (numbers(colour)[3] !== 0) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const contrast = link => {
        const [one, other] = [light(getComputedStyle(link).color), light(ground(link))].sort((a, b) => b - a);
        return (one + 0.05) / (other + 0.05);
    };
    const before = document.documentElement.className;
    for (const theme of ['light', 'rust', 'coal', 'navy', 'ayu']) {
        document.documentElement.className = before.replace(/light|rust|coal|navy|ayu/, '') + ' ' + theme;
        const pale = all('main p a[href], main li a[href], .sidebar a.active').filter(link => link.checkVisibility() && contrast(link) < 4.5);
        if (pale.length) found.push(`links too pale (${theme}): ${pale[0].textContent.trim()}, ${contrast(pale[0]).toFixed(2)} to 1`);
    }
    document.documentElement.className = before;
    const stop = document.querySelector('a[href], button, input, [tabindex="0"]');
    if (document.querySelector('.sidebar') && !stop.matches('.skip')) found.push('the first stop of the keyboard is no way to the text');
    return found;"""

# On a phone: tables of sentences that need a sideways scroll.
TABLES = """
    const prose = [...document.querySelectorAll('main table')].filter(table => [...table.querySelectorAll('td')].some(cell => cell.textContent.length > 40));
    const wide = prose.filter(table => table.parentElement.scrollWidth > table.parentElement.clientWidth + 1);
    return wide.map(table => `a table of sentences needs a sideways scroll: ${table.rows[0].textContent.trim()}`);"""


# On a phone: choices of a question of which a line begins below the button, and not below the first line.
CHOICES = """
    const words = [...document.querySelectorAll('.predict label > input[type=radio] + span')];
    const left = text => {
        const all = document.createRange();
        all.selectNodeContents(text);
        return Math.min(...[...all.getClientRects()].map(line => line.left));
    };
    const under = words.filter(text => left(text) < text.previousElementSibling.getBoundingClientRect().right);
    return under.map(text => `a line of a choice begins below its button: ${text.textContent}`);"""


# Where a figure's formulas differ from the library's numbers. The library's seconds are sums of many rounds. A figure that finds
# its case by the controls' values and draws it has no formulas.
NUMBERS = """
    const [name, expected] = arguments;
    const differs = {
        cost(row) {
            const { rounds, seconds } = shardlab.cost(row.algorithm, row);
            const words = [shardlab.seconds(row.seconds), shardlab.bytes(row.size, 1024)];
            return rounds !== row.rounds || !(Math.abs(seconds / row.seconds - 1) < 1e-9) || `${words}` !== `${row.words}`;
        },
        stages(row) {
            const held = shardlab.zeroMemory(row.stage, row);
            return `${held}` !== `${row.bytes}` || `${held.map(bytes => shardlab.bytes(bytes))}` !== `${row.words}`;
        },
        ring(rounds) {
            const ours = shardlab.ring(rounds[0][1].length).map(({ sent, held }) => [sent, held]);
            return JSON.stringify(ours) !== JSON.stringify(rounds);
        },
        exposed(row) {
            const { backward, count, link, last, waits, hides } = shardlab.exposed(row);
            const near = (ours, theirs) => Math.abs(ours - theirs) <= 1e-9 * Math.max(theirs, backward);
            const words = [backward, link, waits].map(shardlab.seconds);
            return count !== row.count || `${words}` !== `${row.words}`
                || ![backward, link, last, waits, hides].every((number, i) => near(number, row.numbers[i]));
        },
        mesh(row) {
            const found = shardlab.mesh(row);
            const of = what => ["tensor", "data", "pipeline"].map(axis => what[axis]);
            return JSON.stringify([of(found.at), of(found.groups), of(found.nodes)]) !== JSON.stringify([row.at, row.groups, row.nodes]);
        },
        memory(row) {
            const { parameters, held } = shardlab.memory(row);
            const [blocks, ends, working] = held.splice(3);
            const ours = [...held, blocks + ends, working];
            const words = shardlab.bytes(ours.reduce((sum, size) => sum + size));
            return parameters !== row.parameters || words !== row.words
                || !row.held.every((size, i) => Math.abs(ours[i] - size) <= 1e-9 * size);
        },
        // Bars are drawn from rounded thousandths of the longest step.
        plans({ found, steps, ...row }) {
            const longest = Math.max(...steps.map(parts => parts.reduce((sum, part) => sum + part, 0)));
            const drawn = shardlab.steps(shardlab.plans(row)[3]).map(ends => ends.slice(1).map((end, i) => end - ends[i]));
            const near = (parts, i) => parts.every((part, kind) => Math.abs(drawn[i][kind] - part / longest) <= 0.000501);
            return JSON.stringify(shardlab.plans(row)) !== JSON.stringify(found) || drawn.length !== steps.length || !steps.every(near);
        },
        "bad-batch"(row) {
            // The library trains in 32 bits.
            const { losses, roots } = shardlab.badBatch(row);
            const near = (ours, theirs) => Math.abs(ours / theirs - 1) < 1e-4;
            return losses.length !== row.losses.length || !row.losses.every((loss, i) => near(losses[i], loss))
                || !row.roots.every((root, i) => near(roots[10 * i + 9], root));
        },
        schedule({ found, ...row }) {
            const ours = shardlab.schedule(row);
            if (ours.refusal || found.refusal) {
                return ours.refusal !== found.refusal || /--|help/.test(shardlab.refusal(ours.refusal));
            }
            const name = ({ kind, chunk, micro }) => `${"FBW"[kind]}${chunk}.${micro}`;
            const needs = pass => pass.needs.map(need => [need.rank, name(need)]);
            const passes = ours.rows.map(row => row.map(pass => [name(pass), needs(pass)]));
            const { rows, peaks, makespan, busy, ofStep, ofWork, moments } = ours;
            const kept = rows.map(row => Math.max(...moments.map(time => shardlab.kept(row, time))));
            const all = [passes, rows.map(row => row.map(pass => pass.start)), peaks, [makespan, busy], [ofStep, ofWork], kept];
            const { starts, took, bubble } = found;
            return JSON.stringify(all) !== JSON.stringify([found.passes, starts, found.peaks, took, bubble, found.peaks]);
        },
    };
    return expected.filter(differs[name]).map(row => JSON.stringify(row).slice(0, 200));"""

# What is wrong with a figure's letters, wherever its controls are.
LETTERS = """
    const wrong = new Set();
    for (const text of arguments[0].querySelectorAll('.live svg text')) {
        const [inner, outer] = [text.getBoundingClientRect(), text.closest('svg').getBoundingClientRect()];
        if (inner.height < 11) wrong.add(`letters of ${inner.height.toFixed()} pixels: ${text.textContent}`);
        const across = Math.max(outer.left - inner.left, inner.right - outer.right);
        const outside = Math.max(across, outer.top - inner.top, inner.bottom - outer.bottom);
        if (outside > 2) wrong.add(`letters outside of the picture: ${text.textContent}`);
    }
    return [...wrong];"""

# The contrast of letters on the page behind them, by WCAG, which asks for 4.5.
CONTRAST = """
    const light = colour => {
        const [r, g, b, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
        const linear = [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return alpha === 0 ? 1 : 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const contrast = colour => {
        const [own, page] = [colour, getComputedStyle(document.documentElement).backgroundColor].map(light);
        return (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05);
    };"""

# The letters of a figure that are too pale on the page, in a light theme and in a dark one.
PALE = CONTRAST + """
    const [wrong, theme] = [new Set(), document.documentElement.className];
    for (const each of ['light', 'navy']) {
        document.documentElement.className = theme.replace(/\\b(light|navy)\\b/g, '') + ' ' + each;
        for (const text of arguments[0].querySelectorAll('.live :is(svg text, label, th, td, small, option)')) {
            const style = getComputedStyle(text);
            if (contrast(text.localName === 'text' ? style.fill : style.color) < 4.5) wrong.add(`letters too pale on a ${each} page: ${text.textContent}`);
        }
    }
    document.documentElement.className = theme;
    return [...wrong];"""

# What is wrong with a page's slides as they are presented, in a window of 16:9: each is shown by the key that turns to it.
SLIDES = CONTRAST + """
    const wrong = [];
    const slides = [...document.querySelectorAll('main .slide')];
    const [choice, button] = document.querySelectorAll('main .decks :is(select, button)');
    const press = key => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    const looked = new Set();
    function look(slide) {
        looked.add(slide);
        const name = `the slide ${slide.querySelector('h2').textContent}`;
        const outer = slide.getBoundingClientRect();
        if (Math.abs(outer.width - innerWidth) > 1 || Math.abs(outer.height - innerHeight) > 1) wrong.push(`${name} does not fill the window`);
        for (const part of slide.children) {
            const inner = part.getBoundingClientRect();
            const over = Math.max(inner.right - outer.right, inner.bottom - outer.bottom);
            const code = part.querySelector('code');
            const hidden = code && part.localName === 'pre' ? code.scrollWidth - code.clientWidth : 0;
            if (over > 0.5 || hidden > 1) wrong.push(`${name} does not fit: ${part.textContent.slice(0, 40).trim()}`);
        }
        for (const text of slide.querySelectorAll('h2, p, li')) {
            if (contrast(getComputedStyle(text).color) < 4.5) wrong.push(`${name} has pale letters`);
        }
    }
    for (const { value: deck } of choice.options) {
        choice.value = deck;
        choice.dispatchEvent(new Event('change'));
        button.click();
        const shown = [];
        for (let turn = 0; turn < slides.length; turn++) {
            const [slide, ...more] = slides.filter(slide => slide.getBoundingClientRect().height > 0);
            if (!slide || more.length) {
                wrong.push('not one slide at a time');
                break;
            }
            if (shown.at(-1) === slide) break;
            shown.push(slide);
            // A path shows its labs' slides again.
            if (!looked.has(slide)) look(slide);
            press('ArrowRight');
        }
        const of = slide => slide.dataset.decks?.split('|') ?? ['half a day', ...slide.classList.contains('taste') ? ['90 minutes'] : []];
        const all = slides.filter(slide => of(slide).includes(deck));
        if (all.some((slide, i) => shown[i] !== slide) || shown.length !== all.length) wrong.push(`${deck} shows ${shown.length} slides, and has ${all.length}`);
        press('Escape');
        if (slides.some(slide => !slide.getBoundingClientRect().height)) wrong.push('Esc does not end the slides');
    }
    return [...new Set(wrong)];"""

MOTION = "return arguments[0].getAnimations({ subtree: true }).length"


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
    # By way of an empty page: asked for the page that it has, a slow browser answers while it still has the old one, or none.
    straight, done = browser.get, "return document.readyState === 'complete' && (location.href !== 'about:blank') === arguments[0]"

    def get(url):
        for goal in ("about:blank", url):
            straight(goal)
            WebDriverWait(browser, 20).until(lambda browser: browser.execute_script(done, goal != "about:blank"))

    browser.get = get
    return browser


def formulas(markdown):
    """How many formulas a page's source has: `$...$` and `$$...$$` outside of code."""
    prose = re.sub(r"^ *(```|~~~).*?^ *\1", "", markdown, flags=re.MULTILINE | re.DOTALL)
    marked = re.finditer(r"(`+).*?\1|(\$+).*?\2", prose, re.DOTALL)
    return sum(found.group(2) is not None for found in marked)


def loud(console):
    return [f"on the console: {entry['message']}" for entry in console if entry["level"] in ("SEVERE", "WARNING")]


def faults(look, console, markdown):
    """What is wrong with one page."""
    found = loud(console)
    if look["formulas"] != formulas(markdown):
        found.append(f"{look['formulas']} formulas of {formulas(markdown)}")
    if look["over"] > 0 or look["window"] != PHONE:
        found.append(f"{look['over']} pixels too wide for a window of {look['window']}")
    if look["pictures"]:
        found.append(f"{look['pictures']} drawings are not drawn")
    for kind, what in (("images", "a missing image"), ("flat", "a formula that is not drawn"),
                       ("fractions", "a fraction in one line"), ("sums", "a sum as small as its limits"), ("loaded", "asked of the network")):
        found += [f"{what}: {which}" for which in look[kind]]
    found += ["{{# is visible"] if "{{#" in look["text"] else []
    return found + [f"{rest} is visible" for rest in ("$$", "\\frac", "**") if rest in look["prose"]]


def less_motion(browser, asked):
    feature = {"name": "prefers-reduced-motion", "value": "reduce" if asked else ""}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def soon(holds):
    """Whether something holds within some seconds."""
    for _ in range(50):
        if holds():
            return True
        time.sleep(0.1)
    return False


def try_control(browser, figure, control, first):
    """What is wrong with one control of a figure, which is used by keys alone."""
    def press(*keys):
        ActionChains(browser).send_keys(*keys).perform()

    if not control.is_enabled():
        why = browser.execute_script("return arguments[0].nextElementSibling.textContent", control)
        return [] if why else ["a control that cannot move, and does not say why"]

    def look():
        return browser.execute_script("return arguments[0].querySelector('.drawing').innerHTML", figure)

    if first:
        browser.execute_script("arguments[0].focus()", control)
    else:
        press(Keys.TAB)
    if not soon(lambda: browser.switch_to.active_element == control):
        return ["a control that the Tab key does not reach"]
    name = control.accessible_name
    found = [] if name else ["a control without a name"]
    outline = browser.execute_script("return getComputedStyle(arguments[0]).outline", control)
    if "none" in outline or " 0px" in outline:
        found.append(f"{name}: no focus to see")
    before = look()
    keys = {"input": [Keys.ARROW_RIGHT, Keys.ARROW_LEFT], "select": [Keys.ARROW_DOWN, Keys.ARROW_UP],
            "button": [Keys.SPACE]}
    for key in keys[control.tag_name]:
        less_motion(browser, True)
        press(key)
        if browser.execute_script(MOTION, figure):
            found.append(f"{name}: moves although the reader asks for less motion")
        less_motion(browser, False)
        if look() != before:
            break
    else:
        found.append(f"{name}: keys change nothing")
    # The ends of a slider are where pictures break.
    for key in [Keys.HOME, Keys.END, None] if control.tag_name == "input" else [None]:
        if key:
            press(key)
        found += browser.execute_script(LETTERS, figure)
        over = browser.execute_script(LOOK)["over"]
        found += [f"{name}: {over} pixels too wide"] if over > 0 else []
    return found


def try_passes(browser, figure, drawing):
    """What is wrong with a drawing whose parts the reader chooses: by keys, and by touching the middle of each row."""
    def said():
        return figure.find_element("css selector", "[role=status]").text

    ActionChains(browser).send_keys(Keys.TAB).perform()
    found = [] if browser.switch_to.active_element == drawing else ["passes that the Tab key does not reach"]
    browser.execute_script("arguments[0].focus()", drawing)
    before = said()
    ActionChains(browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT).perform()
    if " waits for " not in said() or said() == before:
        found.append("keys choose no pass")
    for rank in [1, 0]:
        ActionChains(browser).move_to_element(drawing.find_element("css selector", f"[data-rank='{rank}']")).click().perform()
        if f" on rank {rank} waits for " not in said():
            found.append("touching a pass says nothing")
    return found + browser.execute_script(LETTERS, figure)


def try_cells(browser, figure):
    """What is wrong with a drawing of ranks, of which the reader touches one."""
    found = []
    for rank in [0, 1]:
        cells = figure.find_elements("css selector", f"[data-cell='{rank}']")
        if not cells:
            continue
        ActionChains(browser).move_to_element(cells[0]).click().perform()
        if not figure.find_element("css selector", "[role=status]").text.startswith(f"Rank {rank} of "):
            found.append("touching a rank says nothing")
    return found


def try_figures(browser, url, expected):
    """The names of a page's interactive figures, and what is wrong with them."""
    find = lambda parent, selector: parent.find_elements("css selector", selector)
    names, found = [], []
    for figure in find(browser, "figure[data-figure]"):
        name = figure.get_attribute("data-figure")
        names.append(name)
        if name not in FIGURES or len(find(figure, ".live")) != 1:
            found.append(f"{name}: not interactive, once")
            continue
        if name in expected:
            found += [f"{name}: not what the library computes: {row}"
                      for row in browser.execute_script(NUMBERS, name, expected[name])[:1]]
        for i, control in enumerate(find(figure, "input, select, button")):
            found += [f"{name}: {what}" for what in try_control(browser, figure, control, i == 0)]
        for drawing in find(figure, ".drawing[tabindex]"):
            found += [f"{name}: {what}" for what in try_passes(browser, figure, drawing)]
        found += [f"{name}: {what}" for what in browser.execute_script(PALE, figure)]
        if find(figure, "[data-cell]"):
            found += [f"{name}: {what}" for what in try_cells(browser, figure)]
    if browser.current_url != url:
        found.append("a figure's key also turns the page")
    found += loud(browser.get_log("browser"))
    if names:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(url)
        for figure in find(browser, "figure[data-figure]"):
            if not any(svg.size["height"] > 4 for svg in find(figure, "svg")):
                found.append(f"{figure.get_attribute('data-figure')}: no picture without scripts")
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        browser.get_log("browser")
    return names, list(dict.fromkeys(found))


def try_aids(browser, pages):
    """What is wrong with a reader's path, and with a word's definition, on pages that have both."""
    find = lambda selector: browser.find_elements("css selector", selector)
    lines = lambda: [line.text for line in find("nav.path") if line.is_displayed()]
    browser.get(pages["how-to-use"])
    browser.execute_script("document.querySelector('[id^=half-a-day-b] ~ .table-wrapper a').click()")
    found = []
    for row in ["row 1 of ", "row 2 of "]:
        # A click returns before the next page is read, and its scripts wait for that.
        soon(lambda: any(row in line for line in lines()))
        said = lines()
        if len(said) != 2 or not said[0].startswith(f"Half a day B, {row}") or "leave the path" not in said[0]:
            found.append(f"a path's line is {said}, and not twice {row}")
            break
        browser.execute_script("[...document.querySelectorAll('nav.path:not([hidden]) a')].at(-1).click()")
    for term in find(".term")[:1]:
        says = term.get_attribute("aria-description")
        shown = "return getComputedStyle(arguments[0], '::after').content"
        before = browser.execute_script(shown, term)
        browser.execute_script("arguments[0].focus()", term)
        if says in before or says not in browser.execute_script(shown, term):
            found.append("a word's definition is not shown on focus, or always")
    # Arrow keys turn the page, but not where something else has the focus.
    if "lab06" in pages:
        for focused in ["main pre code", "main .term", "main summary", "main p"]:
            browser.get(pages["lab06"])
            browser.execute_script("""const at = [...document.querySelectorAll(arguments[0])].find(one => one.checkVisibility());
                at.tabIndex = 0; at.focus()""", focused)
            browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
            time.sleep(0.2)
            if (browser.current_url != pages["lab06"]) != (focused == "main p"):
                found.append(f"an arrow key in {focused} leads to {browser.current_url}")
        browser.get(pages["how-to-use"])
    browser.execute_script("document.querySelector('nav.path:not([hidden]) button')?.click()")
    return found + [f"a path that was left has the line {line}" for line in lines()]


def try_slides(browser, url):
    """What is wrong with a page's slides, in a light theme and in a dark one, if it has slides."""
    if not browser.execute_script("return document.querySelector('main .slide') !== null"):
        return []
    size = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    found = []
    for theme in ["light", "navy"]:
        browser.execute_script("document.documentElement.className = arguments[0]", f"js {theme}")
        found += [f"{what} ({theme})" for what in browser.execute_script(SLIDES)]
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found + ([] if browser.current_url == url else ["a slide's key also turns the page"])


# The pages on which everything about the fold is tried: a lab's, and the one that is broken on purpose.
WHOLE = ("lab05", "bad", "good")

# What a page's script reads of what readers type, where the library reads something else.
TYPED = """
    const differs = arguments[0].filter(({ unit, said, read }) => !Object.is(shardlab.read({ unit }, said), read));
    return differs.map(({ unit, said, read }) => `"${said}" is ${shardlab.read({ unit }, said)}, and ${read} in the library (unit "${unit}")`);"""

# What is hidden after a question, as the reader sees it: the button, whether what is below it shows, and how many buttons there are
# to leave the prediction out, or to see the answer after one.
FOLD = """
    const [line, fold] = [document.querySelector('main .folded'), document.querySelector('main .fold')];
    const shown = !fold || fold.getBoundingClientRect().height > 4;
    const ways = [...document.querySelectorAll('main .folded button, main .predict form button[type=button]')];
    return { line: line !== null, fold: fold !== null, shown, ways: ways.filter(way => way.checkVisibility()).map(way => way.textContent),
             named: [...document.querySelectorAll('main .fold [id]')].map(part => part.id), words: fold?.textContent.match(/[a-z]{9,}/)?.[0] };"""


def try_fold(browser, url, whole, typed):
    """What is wrong with what is folded after a page's question. One script folds them all, so `whole` is asked of one page, and so
    are the numbers that it reads."""
    if not browser.execute_script("return document.querySelectorAll('section.predict').length === 1"):
        return []
    look = lambda: browser.execute_script(FOLD)
    click = lambda selector: browser.execute_script("document.querySelector(arguments[0]).click()", selector)
    found = []

    def opened(how, begin, hidden=False):
        nonlocal found
        browser.execute_script("localStorage.clear()")
        browser.get("about:blank")
        begin()
        state = look()
        if hidden == bool(state["shown"]):
            found += [f"what follows the question is {'open' if hidden else 'folded'} {how}"]
        return state

    def asked():
        browser.get(url)
        WebDriverWait(browser, 20).until(lambda browser: browser.find_elements("css selector", ".predict form"))

    begin = opened("at first", asked, hidden=True)
    if len(begin["ways"]) != 1:
        found.append(f"not one button to leave the prediction out: {begin['ways']}")
    if not begin["line"]:
        return found or ["no button where something is folded"]
    click("main .folded button")
    after = look()
    focus = browser.switch_to.active_element.get_attribute("class")
    if after["line"] or not after["shown"] or focus != "fold":
        found.append(f"the button opens nothing, stays, or loses the focus: {after}, {focus}")
    if not whole:
        return found
    found += browser.execute_script(TYPED, typed)[:3]
    browser.get(url)
    found += ["a reader who passed is asked again"] if look()["line"] else []
    said = """const said = document.querySelector('.predict [name=said]');
        if (said.type === 'radio') said.checked = true; else said.value = '1';
        document.querySelector('.predict form').requestSubmit();"""

    # A number below must not come before the sentence about the reader's own.
    after = opened("after an answer, before its verdict", lambda: (asked(), browser.execute_script(said)), hidden=True)
    found += [] if after["ways"] == ["Show the answer"] else [f"not one button after an answer: {after['ways']}"]
    click("main .predict form button[type=button]")
    verdict = browser.execute_script("return document.querySelector('.predict [role=status]').textContent")
    found += [] if look()["shown"] else ["what follows the question is folded after an answer"]
    found += [] if verdict.startswith("You said") else [f"no verdict after an answer: {verdict}"]
    browser.get(url)
    found += ["a reader who answered is asked again"] if look()["line"] else []
    opened("after a search", lambda: browser.get(f"{url}?highlight={begin['words']}"))
    opened("for the printer", lambda: (browser.get(url), browser.execute_script("dispatchEvent(new Event('beforeprint'))")))
    # Chromium opens these by itself; other browsers hide as ever, and the page opens.
    plain = "document.querySelector('main .fold').setAttribute('hidden', ''); location.hash = arguments[0]"
    for name in begin["named"][:1]:
        state = opened("for a link from elsewhere", lambda: browser.get(f"{url}#{name}"))
        found += ["a link from elsewhere leads to a fold"] if state["fold"] else []
        opened("for a link on the page", lambda: (browser.get(url), browser.execute_script(plain, name), time.sleep(0.2)))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("localStorage.clear()")
    browser.get(url)
    found += [] if look()["shown"] else ["what follows the question is not printed"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(url)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    found += ["something is folded without scripts"] if look()["fold"] else []
    return found


# Of each listing with a twin: its tabs' words, the chosen one, the panels that show, and whether each tab has its panel and each panel
# its tab; and whether the tabs show.
TABS = """
    const shows = element => element.getBoundingClientRect().height > 4;
    return [...document.querySelectorAll('main .twins')].map(twins => {
        const [tabs, panels] = ['tab', 'tabpanel'].map(role => [...twins.querySelectorAll(`[role=${role}]`)]);
        const pairs = tabs.length >= 2 && panels.length === tabs.length && tabs.every((tab, i) => tab.matches('[role=tablist] button')
            && tab.getAttribute('aria-controls') === panels[i].id && panels[i].getAttribute('aria-labelledby') === tab.id && panels[i].querySelector('pre'));
        return { tabs: tabs.map(tab => tab.textContent), pairs, chosen: tabs.filter(tab => tab.ariaSelected === 'true').map(tab => tab.dataset.in),
                 shown: panels.filter(shows).map(panel => panel.dataset.in), list: shows(twins.querySelector('[role=tablist]')) };
    });"""


def try_tabs(browser, url, other):
    """What is wrong with a page's listings that have tabs. `other` is another page with some, if there is one."""
    look = lambda: browser.execute_script(TABS)
    browser.get(url)
    browser.execute_script("localStorage.removeItem('shardlab.listing')")
    browser.get(url)
    found = []

    def all_show(name, how):
        for twins in look():
            here = name if name.lower() in [tab.lower() for tab in twins["tabs"]] else "pytorch"
            if [twins["chosen"], twins["shown"]] != [[here], [here]]:
                found.append(f"tabs: {how}: {twins['chosen']} is chosen, and {twins['shown']} shown")

    found += [f"tabs: not two tabs or more with their panels: {twins}" for twins in look() if not twins["pairs"] or not twins["list"]]
    if found:
        return found
    all_show("rust", "at first")
    tabs = browser.find_elements("css selector", "main .twins [role=tab]")
    for tab in [tabs[-1], tabs[0], tabs[1]]:
        browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", tab)
        tab.click()
        all_show(tab.get_attribute("data-in"), "after a click")
    last = len(look()[0]["tabs"]) - 1
    its = tabs[last].get_attribute("data-in")
    for first, key, to, name in ((1, Keys.ARROW_LEFT, 0, "rust"), (0, Keys.ARROW_RIGHT, 1, "pytorch"), (last, Keys.ARROW_RIGHT, 0, "rust"), (0, Keys.END, last, its)):
        browser.execute_script("arguments[0].focus()", tabs[first])
        ActionChains(browser).send_keys(key).perform()
        all_show(name, "after a key")
        if browser.switch_to.active_element != tabs[to]:
            found.append("tabs: a key does not take the focus along")
        outline = browser.execute_script("return getComputedStyle(document.activeElement).outline")
        if "none" in outline or " 0px" in outline:
            found.append("tabs: no focus to see")
    if browser.current_url != url:
        found.append("tabs: an arrow also turns the page")
    browser.get(other)
    all_show(its, "on the next page")
    browser.get(url)
    both = lambda: all(len(twins["shown"]) == len(twins["tabs"]) and not twins["list"] for twins in look())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    found += [] if both() else [f"tabs: printed are {look()}"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_script("localStorage.removeItem('shardlab.listing')")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(url)
    # Before scripts may run again: a page that is still being read would run its own.
    found += [] if both() else [f"tabs: without scripts there are {look()}"]
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    return list(dict.fromkeys(found))


def cases(name):
    """The cases of an interactive figure, as its page has them."""
    return (SOURCES.parent / f"outputs/{name}.json").read_text()


def numbers():
    """The library's numbers behind the interactive figures. Those of plans are the cases
    themselves, in the order of the controls, and the planner's own seconds of each step."""
    command = ["cargo", "run", "--quiet", "--bin", "book", "--", "numbers"]
    computed = subprocess.run(command, cwd=SOURCES.parent.parent, stdout=subprocess.PIPE, text=True, check=True).stdout
    expected, plans = json.loads(computed), json.loads(cases("plans"))
    choices = itertools.product(*(plans[name] for name in ("models", "devices", "memories", "networks")))
    expected["plans"] = [dict(zip(("model", "devices", "memory", "network", "found", "steps"), (*choice, found, steps)))
                         for choice, found, steps in zip(choices, plans["cases"], expected.pop("steps"), strict=True)]
    return expected


def picture(browser, path):
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(shot["data"]))


def visit(browser, url):
    """Opens a page, and all that is folded on it: it must be right, too."""
    browser.get(url)
    browser.execute_script("document.querySelector('main .folded button')?.click(); document.activeElement?.blur()")
    browser.execute_script("document.querySelectorAll('details').forEach(folded => { folded.open = true; })")


def browse(built, sources, expected, pictures=None, chosen=()):
    """What is wrong with the pages in the folder `built`, whose Markdown is in `sources`: with all, or those whose names begin so."""
    names = [source.relative_to(sources).with_suffix("") for source in sorted(sources.rglob("*.md")) if source.stem != "SUMMARY"]
    pages = {name.as_posix(): (built / name).with_suffix(".html").resolve().as_uri() for name in names}
    if chosen:
        pages = {page: url for page, url in pages.items() if page.startswith(tuple(chosen))}
    if not pages or not built.is_dir():
        sys.exit(f"error: no such page in {built}\nhelp: mdbook build book")
    # Both windows at once: each waits for its browser most of the time.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        phone = pool.submit(on_a_phone, pages, sources, expected, pictures)
        laptop = pool.submit(on_a_laptop, pages, expected)
        (wrong, ids, links, live), more = phone.result(), laptop.result()
    wrong += more
    wrong += [f"no page has the figure {name}" for name in FIGURES if name not in live and not chosen]
    for page, link in links:
        file, _, place = link.partition("#")
        elsewhere = link.startswith("https://") or pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(link).path)).is_file()
        is_there = place in ids[file] if file in ids else elsewhere or chosen
        if not is_there:
            wrong.append(f"{page}: a link to {link}, which is not there")
    if pictures:
        with start(LAPTOP) as browser:
            for page, url in pages.items():
                browser.get(url)
                browser.execute_script("localStorage.setItem('mdbook-theme', 'navy')")
                browser.get(url)
                picture(browser, pictures / f"{page.replace('/', '-')}-dark.png")
    return wrong


def on_a_phone(pages, sources, expected, pictures):
    """What is wrong in a narrow window; the places of each page, all links, and the names of interactive figures."""
    wrong, ids, links, live = [], {}, [], set()
    with start(PHONE) as browser:
        for page, url in pages.items():
            visit(browser, url)
            look = browser.execute_script(LOOK)
            markdown = (sources / f"{page}.md").read_text()
            wrong += [f"{page}: {what}" for what in faults(look, browser.get_log("browser"), markdown)]
            wrong += [f"{page}: {what}" for what in browser.execute_script(TABLES)]
            if browser.execute_script("return document.querySelector('section.predict') !== null"):
                WebDriverWait(browser, 20).until(lambda browser: browser.find_elements("css selector", ".predict form"))
            wrong += [f"{page}: {what}" for what in browser.execute_script(CHOICES)]
            ids[url] = {"", *look["ids"]}
            links += [(page, link) for link in look["links"]]
            if pictures:
                picture(browser, pictures / f"{page.replace('/', '-')}-phone.png")
            names, found = try_figures(browser, url, expected)
            live.update(names)
            wrong += [f"{page}: {what}" for what in found]
    return wrong, ids, links, live


def on_a_laptop(pages, expected):
    """What is wrong in a wide window, where slides are shown."""
    wrong, other = [], None
    with start(LAPTOP) as browser:
        for page, url in pages.items():
            visit(browser, url)
            layout = browser.execute_script(LAYOUT)
            wrong += [f"{page}: {what}" for what in browser.execute_script(ACCESS)]
            wrong += [f"{page}: a number in several lines: {which}" for which in layout["split"]]
            wrong += [f"{page}: an output wider than its column: {which}" for which in layout["wide"]]
            browser.get(url)
            first = browser.execute_script(LAYOUT)["first"]
            if re.fullmatch(r"lab\d\d", page) and (first is None or first > FIRST):
                wrong.append(f"{page}: its first figure begins {first} pixels down, and not within {FIRST}")
            wrong += [f"{page}: {what}" for what in try_slides(browser, url)]
            wrong += [f"{page}: {what}" for what in try_fold(browser, url, page in WHOLE, expected["typed"])]
            if browser.find_elements("css selector", "main .twins"):
                wrong += [f"{page}: {what}" for what in try_tabs(browser, url, other or url)]
                other = url
        wrong += try_aids(browser, pages) if "how-to-use" in pages else []
    return wrong


# A page with every fault, and one like it with none. Of a page with slides only these are printed, so tabs are outside of theirs.
BROKEN = """<meta charset=utf-8><meta name=viewport content='width=device-width'><link rel=icon href='data:,'><main style='{style}'>
<p>{text} <a href='{link}'>a link</a> <a href='good.html#place'>one</a> <a href='https://doc.rust-lang.org'>one more</a>
<img src='{image}'>{wide}<math><mfrac style='{low}'><mn>1</mn><mn>2</mn></mfrac></math><math style='{flat}'><mi>x</mi></math>
{access}<svg class=figure id=place width=9 height={height}></svg>{figures}{slides}{question}<script>{script}</script></main><main>{tabs}</main>"""
GOOD = dict(access="", style="", wide="", text="", link="#place", low="font-size:40px", flat="", height=9, script="",
            image="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
BAD = dict(access=f"<nav class=sidebar></nav><a href='#place'></a><div style='width:99px;overflow:auto'><table><td>{'a sentence ' * 9}<td>{'x' * 99}</table></div>"
                  "<style>main p a {color:#bbb}</style><table><td style='width:1px'>2.28 (2.26-2.31)</table>"
                  "<div class=predict><label style='display:block;width:99px'><input type=radio> <span>two words or three or four</span></label></div>"
                  "<div class=formula><math display=block><munderover><mo largeop=false>∑</mo><mn>0</mn><mn>9</mn></munderover></math></div>", style="width:900px", wide="<pre><code class=output style='display:block;width:40px;overflow:auto'>$ sh\nas wide as can be, and wider</code></pre>", text="$$ \\frac {{#include x}} **", link="nowhere.html", low="display:none",
           flat="display:block;height:1px;overflow:hidden", height=1, image="none.png",
           script="console.error('loud'); fetch('http://127.0.0.1:9/').catch(() => 0)")
# The figures, with a key that turns the page, as mdBook's do; and their faults: in which file what is replaced.
FIGURES = ["cost", "stages", "ring", "schedule", "plans", "exposed", "mesh", "memory", "reshard", "cut", "bad-batch", "straggler", "drift", "divisor"]
# Those whose cases are written into the page.
DRAWN = ["schedule", "plans", "cut", "reshard", "mesh", "straggler", "drift", "divisor"]
FILES = ["figures.css", "shared.js", *(f"{name}.js" for name in FIGURES)]
FAULTS = [("figures.css", "outline: 3px", "outline: 0px"), ("figures.css", "animation: none", "color: inherit"),
          ("shared.js", "event.stopPropagation()", "0"), ("shared.js", "<label>${label} <b>", "<label><b hidden>"),
          ("shared.js", 'font-size="13"', 'font-size="6"'), ("cost.js", "=== n ? 0 : 2", "=== n ? 0 : 1"),
          ("stages.js", "stage >= 3", "stage > 3"), ("stages.js", 'width, y + 12, "end"', 'width, y + 12, "start"'),
          ("ring.js", "(rank + 2 * n - round) % n", "(rank + round) % n"),
          ("shared.js", 'next.addEventListener("click"', 'next.addEventListener("copy"'),
          ("ring.js", "begin();", "begin(); ranks.addEventListener('input', () => console.error('shouts'));"),
          ("plans", '"llama-3-8b",\n"llama-2-13b"', '"llama-2-13b",\n"llama-3-8b"'),
          ("exposed.js", "Math.max(free, backward * end / parameters)", "Math.max(free, backward * i / count)"),
          ("figures.css", ".live small {", ".live small { color: #999;"),
          ("mesh.js", "below *= sizes[axis]", "below += sizes[axis]"), ("mesh.js", 'closest("[data-cell]")', 'closest("[data-none]")'),
          ("memory.js", "(16 * number + 2)", "(17 * number)"), ("shared.js", "nextElementSibling.textContent = why", "nextElementSibling.textContent = ''"),
          ("bad-batch.js", "(1 - beta2) * g * g", "(1 - beta2) * gradient[i] * gradient[i]"),
          ("schedule", '"orders":["AB"', '"orders":["BA"'), ("schedule.js", "tabIndex = 0", "tabIndex = -1"),
          ("schedule.js", 'drawing.addEventListener("click"', 'drawing.addEventListener("copy"')]
TURN = "<script>onkeydown = event => { if (event.key === 'ArrowRight') location.hash = 'turned' }</script>"
# Two slides, with what is wrong with the first and with the script that shows them.
DECK = """<style>{style}</style><section class='slide taste'><h2>One</h2>{first}</section><section class=slide><h2>Two</h2></section><script>{script}</script>"""
FOUND = [r"the slide One does not fit: as long .*\(navy\)", r"the slide One has pale letters \(light\)", r"Esc does not end the slides", "90 minutes shows 2 slides, and has 1",
         "cost: not what the library computes", "stages: not what the library computes",
         "ring: not what the library computes", "schedule: not what the library computes",
         "plans: not what the library computes", "exposed: not what the library computes",
         "memory: not what the library computes", "memory: a control that cannot move, and", "mesh: not what the library computes", "mesh: touching a rank says nothing",
         "bad-batch: not what the library computes",
         "memory: letters too pale on a light page",
         "schedule: passes that the Tab key does not reach", "schedule: touching a pass says nothing", "on the console: .*shouts", "cost: a control without a name",
         "stages: .*: no focus to see", "ring: next: keys change nothing", "ring: .*: moves although",
         "cost: letters of . pixels", "stages: letters outside of the picture: .* GB",
         "a figure's key also turns the page", "nothing: not interactive, once",
         "a link without a name: #place", r"links too pale \(navy\): a link", "the first stop of the keyboard", "a table of sentences needs",
         "nothing: no picture without scripts", "on the console: .*loud", "3 formulas of 4", r"\d+ pixels too wide",
         "1 drawings are not drawn", "a missing image: .*none.png", "a formula that is not drawn: x",
         "a fraction in one line: 12", "a sum as small as its limits: ∑09", "a number in several lines: 2.28", "a line of a choice begins below", "asked of the network: http://127.0.0.1:9/", r"\$\$ is visible",
         *(f"what follows the question is folded {how}" for how in ("after an answer", "after a search", "for the printer", "for a link on the page")),
         "not one button to leave the prediction out: ", "what follows the question is open after an answer, before its verdict", '"1,500" is 1.5, and 1500',
         *(f"tabs: {what}" for what in ("after a click", "a key does not take the focus along", "no focus to see", "an arrow also turns the page",
                                        "on the next page", "printed are", "without scripts there are")),
         "a reader who passed is asked again", "an output wider than its column: \\$ sh", r"\\frac is visible", "{{# is visible", r"\*\* is visible", "a link to .*nowhere.html, which is not there"]


# A question with an answer below it, and faults in what folds that.
QUESTION = """<style>%s</style><section class=predict><script type=application/json>%s</script><p>How many?</p><details><summary>The answer</summary></details></section>
<p id=inside>unmistakable: two</p><h2>next</h2><script>shardlab.canRun = Promise.resolve(false);</script><script>%s</script>"""
UNFOLDED = [('addEventListener("beforeprint", open);', ""), ("|| kept(PASSED)[lab]", ""), ("sought.some(word => text.includes(word)) ||", ""),
            ('addEventListener("hashchange"', 'addEventListener("copy"'), ("            open();\n            const verdict", "            document.querySelector('.fold').hidden = true;\n            const verdict"), ("skip.hidden = open.folds ?? false", "skip.hidden = false"),
            ("open.committed?.();", "open();"), ("const thousands = rest.length === 3", "const thousands = rest.length === 4")]


def question(faults):
    style = (SOURCES.parent / "shardlab.css").read_text()
    style = style[style.index("/* What answers the question"):style.index("/* The map above")]
    script = (SOURCES.parent / "run/predict.js").read_text()
    for old, new in faults:
        if old not in script:
            sys.exit(f"error: predict.js has no {old!r}\nhelp: plant the fault where it is now")
        script = script.replace(old, new)
    asked = dict(lab="lab99", choices=[dict(text="two", mistake="", value=2)], typed=dict(unit="", within=0.0), why="", flags="", shown="")
    return QUESTION % (style, json.dumps(asked), script)


# A listing with its twin, and faults in its style and script.
TWINS = """<style>:root {--links: blue} %s</style><div class=twins><div role=tablist>%s</div>%s</div><script>%s</script>"""
UNTURNED = [("main .twins:not(.tabbed) [role=tablist] { display: none; }", ""), ("[hidden] { display: block;", "[hidden] { display: none;"),
            ("outline: 3px solid", "outline: 0px solid"), ("event.stopPropagation();", ""), ("to.focus();", ""), ("storage.setItem(KEY", "storage.getItem(KEY"),
            ('tab.addEventListener("click"', 'tab.addEventListener("copy"')]


def twins(faults):
    style, script = ((SOURCES.parent / file).read_text() for file in ("shardlab.css", "tabs.js"))
    style = style[style.index("/* A listing in Rust with"):style.index("/* The question before")]
    for old, new in faults:
        if old not in style + script:
            sys.exit(f"error: neither shardlab.css nor tabs.js has {old!r}\nhelp: plant the fault where it is now")
        style, script = style.replace(old, new), script.replace(old, new)
    names = ("rust", "pytorch")
    tabs = [f"<button role=tab id=tab-{name} aria-controls=in-{name} data-in={name}>{name}</button>" for name in names]
    panels = [f"<div role=tabpanel id=in-{name} aria-labelledby=tab-{name} data-in={name}><pre><code>{name}</code></pre></div>" for name in names]
    return TWINS % (style, "".join(tabs), "".join(panels), script)


def figures(names, faults):
    """Interactive figures, with faults in their files. Each script runs twice, as in a notebook with two cells."""
    texts = {name: cases(name) for name in DRAWN}
    texts |= {file: (SOURCES.parent / "figures" / file).read_text() for file in FILES}
    for file, old, new in faults:
        if old not in texts[file]:
            sys.exit(f"error: {file} has no {old!r}\nhelp: plant the fault where it is now")
        texts[file] = texts[file].replace(old, new)
    data = {name: f"<script type=application/json>{texts.pop(name)}</script>" for name in DRAWN}
    style, *scripts = texts.values()
    places = [f"<figure data-figure={name}><svg width=9 height=9></svg>{data.get(name, '')}</figure>" for name in names]
    return "".join([TURN, f"<style>{style}</style>", *places, *(f"<script>{script}</script>" for script in scripts * 2)])


def broken():
    """What was not found on a page that has every fault, or was found on one that has none."""
    GOOD["question"] = question([])
    BAD["question"] = question(UNFOLDED)
    GOOD["tabs"] = twins([])
    BAD["tabs"] = twins(UNTURNED)
    GOOD["figures"] = figures(FIGURES, [])
    BAD["figures"] = figures(FIGURES, FAULTS) + "<figure data-figure=nothing></figure>"
    style, script = ((SOURCES.parent / "teach" / file).read_text() for file in ("teach.css", "slides.js"))
    GOOD["slides"] = DECK.format(style=style, first="<p>short</p>", script=script)
    BAD["slides"] = DECK.format(style=style, first=f"<p style='color:#aaa'>{'as long as can be ' * 500}</p>",
                                script=script.replace("Escape: leave", "Escape: () => 0").replace("decks(slide).includes(name)", "true"))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for page, values, markdown in (("good", GOOD, "$1$ `$` $$x$$\n```\n$ sh\n```\n"), ("bad", BAD, "$1$ $x$ $y$ $z$")):
            html = re.sub(r"\{(\w+)\}", lambda found: str(values[found.group(1)]), BROKEN)
            (folder / f"{page}.html").write_text(f"<!doctype html>{html}")
            (folder / f"{page}.md").write_text(markdown)
        found = browse(folder, folder, numbers())
    missed = [f"not found: {what}" for what in FOUND if not any(re.match(f"bad: {what}", each) for each in found)]
    return missed + [each for each in found if each.startswith("good: ")]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--built", type=pathlib.Path, default=SOURCES.parent.parent / "target/book")
    arguments.add_argument("--pictures", type=pathlib.Path, metavar="DIR")
    arguments.add_argument("--broken", action="store_true")
    arguments.add_argument("pages", nargs="*", metavar="PAGE", help="how the names of pages begin: lab03; default: all")
    given = arguments.parse_args()
    wrong = broken() if given.broken else browse(given.built, SOURCES, numbers(), given.pictures, given.pages)
    sys.exit("\n".join(wrong) if wrong else print("every page is as it should be"))


if __name__ == "__main__":
    main()
