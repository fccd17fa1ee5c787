#!/usr/bin/env python3
"""Runs every lab on its page of the built book, in a real browser, and compares with the programs themselves.

    book/labs.py --bin target/debug [LAB...]

`book build` has made the book, and `workbook serve` serves it here on a free port. What a lab says of times, of the machine
and of its process may differ. Needs what book/browse.py needs.
"""

import argparse
import concurrent.futures
import functools
import http.server
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import tomllib
import threading
import time

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from browse import LAPTOP, PHONE, loud, start

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What labs.toml says of each lab in a browser.
COURSE = tomllib.loads((ROOT / "labs/labs.toml").read_text())["lab"]
LABS = {lab["name"]: lab.get("browser", {}) for lab in COURSE}
# At most so many bytes, as built and as a server sends it.
MOST_BYTES = {"labs.wasm": 10_280_000, "labs.wasm.gz": 3_150_000}
# Of each exercise with a form the right answer, and a wrong one whose mistake its check knows.
ANSWERS = {
    "lab01-which": (["Reduce_Scatter"], ["all-reduce"]),
    "lab02-divide": (["6"], ["3"]),
    "lab03-replicas": (["c"], ["A"]),
    "lab03-profile": (["57", "1", "2"], ["57", "0", "2"]),
    "lab04-holds": (["78"], ["240"]),
    "lab05-slice": (["2048", "4,096"], ["16384", "512"]),
    "lab06-bubble": (["40"], ["90"]),
    "lab07-where": (["70"], ["110"]),
    "lab08-after": (["121"], ["81"]),
    "lab09-pieces": (["1", "6"], ["2", "0"]),
    "lab09-control": (["8"], ["9"]),
    "lab10-settings": (["180"], ["45"]),
    "lab11-state": (["21,0"], ["4,5"]),
    "lab12-zigzag": (["200", "1300"], ["400", "500"]),
    "lab13-counts": (["2", "5", "2", "3"], ["3", "3", "3", "3"]),
}
# At most so long, in seconds.
PATIENCE = 120


def open_page(browser, address):
    """Opens a page and waits for its buttons: it first asks whether the labs are there."""
    browser.get(address)
    WebDriverWait(browser, PATIENCE, 0.05).until(lambda browser: browser.find_elements("css selector", "button.runs"))
    # Most buttons are in what is folded after the question, which can be asked all the same.
    browser.execute_script("document.querySelector('main .folded button')?.click()")


def run(browser, flags, wait=True):
    """Runs the lab of the first button with these flags, and returns its panel."""
    panels = browser.find_elements("css selector", "section.run")
    if not panels:
        # Some are in a box that is closed.
        buttons = browser.find_elements("css selector", "button.runs")
        next(button for button in buttons if button.is_displayed()).click()
        panel = browser.find_element("css selector", "section.run")
        browser.execute_script("arguments[0].querySelectorAll('button')[1].click()", panel)
    else:
        panel = panels[0]
    settle(browser, panel)
    field = panel.find_element("css selector", "input")
    field.clear()
    field.send_keys(flags, Keys.ENTER)
    if wait:
        settle(browser, panel)
    return panel


def predict(browser, to_its_end=True):
    """Commits to the right answer of the page's question, which runs the lab. Returns its panel, the words of the lab's screen that
    the answer is read from, and what is wrong. Not to its end: it is stopped when the answer is there."""
    place = browser.find_element("css selector", "section.predict")
    question = json.loads(place.find_element("css selector", "script").get_attribute("textContent"))
    found = []
    # The page judges as the lab does, whatever is said.
    for i, choice in enumerate(question["choices"]):
        said = str(choice["value"]) if question["typed"] else chr(ord("a") + i)
        judged = browser.execute_script("return shardlab.judged(arguments[0], arguments[1])", question, said)
        if judged != {"right": choice["mistake"] == "", "says": choice["mistake"]}:
            found.append(f"{said} is judged {judged}")
    right = next(i for i, choice in enumerate(question["choices"]) if not choice["mistake"])
    if question["typed"]:
        for said, says in [("-1e9", "That is too low."), ("1e9", "That is too high."), ("many", None)]:
            judged = browser.execute_script("return shardlab.judged(arguments[0], arguments[1])", question, said)
            if (judged and judged["says"]) != says:
                found.append(f"{said} is judged {judged}")
        place.find_element("css selector", "input[name=said]").send_keys(str(question["choices"][right]["value"]))
    else:
        place.find_elements("css selector", "input[name=said]")[right].click()
    place.find_element("css selector", "button[type=submit]").click()
    panel = place.find_element("css selector", "section.run")
    status = place.find_element("css selector", "[role=status]")
    if to_its_end:
        settle(browser, panel)
    else:
        # The verdict comes when the answer does, and not when the run has ended.
        WebDriverWait(browser, PATIENCE, 0.05).until(lambda _: status.text.startswith("You said"))
        found += [] if panel.get_attribute("data-exit") is None else ["the verdict comes when the run has ended"]
        browser.execute_script("arguments[0].querySelectorAll('button')[1].click()", panel)
    if place.get_attribute("data-right") != "true" or question["choices"][right]["text"] not in status.text:
        found.append(f"the right answer is told: {status.text}")
    return panel, question["shown"], found


def settle(browser, panel):
    begun = time.monotonic()
    while panel.get_attribute("data-exit") is None:
        if time.monotonic() - begun > PATIENCE:
            sys.exit(f"{browser.current_url}: does not end: {screen(browser, panel)[-500:]}")
        time.sleep(0.05)


def screen(browser, panel):
    return browser.execute_script("return arguments[0].querySelector('code').textContent", panel)


def native(programs, lab, flags, folder):
    """What the program itself prints, its exit code, and its seconds from the first line on."""
    command = [programs / lab, *flags.split()]
    # A page has the bits that every machine gives: a processor's tiles have their own.
    env = {**os.environ, "SHARDLAB_SIMD": "vectors"}
    running = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    first = running.stdout.readline()
    begun = time.monotonic()
    out, errors = running.communicate()
    return (first + out + errors).decode(), running.returncode, time.monotonic() - begun


def first_loss(metrics):
    return next(line["loss"] for line in map(json.loads, metrics.splitlines()) if line.get("step") == 1)


def try_lab(browser, address, programs, lab):
    """What is wrong with a lab on its page."""
    open_page(browser, f"{address}/{lab}.html")
    told = LABS[lab]
    flags = told.get("flags", "")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        theirs, _, seconds = native(programs, lab, flags, folder)
        metrics = folder / "m.jsonl"
        metrics = metrics.read_text() if metrics.exists() else ""
    shown, found = "", []
    if browser.find_elements("css selector", "section.predict"):
        panel, shown, found = predict(browser, to_its_end=not flags)
    if flags:
        panel = run(browser, flags)
    first, last = json.loads(panel.get_attribute("data-times"))
    print(f"{lab}: first line after {first:.2f} s, then {last - first:.3f} s; its program {seconds:.3f} s", flush=True)
    text, code = screen(browser, panel), panel.get_attribute("data-exit")
    said = panel.find_element("css selector", "[role=status]").text
    one_line = lambda text: " ".join(text.split())
    if not all(one_line(shown) in one_line(printed) for printed in [text, theirs]):
        found.append(f"no run shows {shown!r}")
    checks = [line for line in text.splitlines() if line.startswith("  check ")]
    if code != "0" or not checks or any("✗" in line for line in checks):
        found.append(f"ends with {code}: {said} {text[-400:]}")
    # Checks hold with the same words, and bitwise is bitwise.
    bitwise = lambda text: [line.split("bitwise")[0].rstrip(" …") for line in text.splitlines() if "bitwise" in line and "✓" in line]
    if bitwise(text) != bitwise(theirs):
        found.append(f"bitwise here: {bitwise(text)}, and there: {bitwise(theirs)}")
    # What ranks hold and send: the same bytes.
    counted = lambda text: re.findall(r"([\d.,]*\d) (bytes|[kM]?B)(?![/\w])", text)
    number = lambda text: float(text.replace(",", ""))
    least, most = told.get("fewest", 1), told.get("most", 1)
    for (ours, unit), (other, their) in itertools.zip_longest(counted(text), counted(theirs), fillvalue=("0", "")):
        if unit != their or not least * number(other) <= number(ours) <= most * number(other):
            found.append(f"{ours} {unit} here, and there {other} {their}")
    if "equal_but" in told:
        same = lambda text: [line for line in text.splitlines() if not any(word in line for word in told["equal_but"])]
        for ours, other in zip(same(text), same(theirs)):
            if ours != other:
                found.append(f"here {ours!r}, and there {other!r}")
                break
    if metrics:
        link = "return [...document.querySelectorAll('.run details a')].find(a => a.download === 'm.jsonl')"
        read = f"const link = ({link.removeprefix('return ')}); link.click(); return fetch(link.href).then(answer => answer.text())"
        ours, other = first_loss(browser.execute_script(read)), first_loss(metrics)
        if not abs(ours / other - 1) < 1e-6:
            found.append(f"the first loss is {ours}, and there {other}")
    return [f"{lab}: {what}" for what in found]


def try_page(browser, address, programs):
    """Stop, two runs, wrong flags, a reload, little memory, and keys alone."""
    found = []
    page = f"{address}/lab03.html"
    open_page(browser, page)
    panel = run(browser, "--steps 1000", wait=False)
    begun = time.monotonic()
    while "step=" not in screen(browser, panel) and time.monotonic() - begun < PATIENCE:
        time.sleep(0.1)
    browser.execute_script("arguments[0].querySelectorAll('button')[1].click()", panel)
    if panel.get_attribute("data-exit") != "130" or "step=" not in screen(browser, panel):
        found.append(f"Stop leaves {panel.get_attribute('data-exit')}: {screen(browser, panel)[-300:]}")
    panel = run(browser, "--steps 5", wait=False)
    time.sleep(1)
    open_page(browser, page)
    wrong = "--steps many"
    panel = run(browser, wrong)
    theirs, code, _ = native(programs, "lab03", wrong, ROOT)
    # The page is a terminal, which folds.
    if screen(browser, panel).split() != theirs.split() or panel.get_attribute("data-exit") != str(code):
        found.append(f"{wrong}: {screen(browser, panel)!r}, and there {theirs!r}")
    open_page(browser, f"{address}/lab00.html")
    browser.execute_script("shardlab.most = [4096]")
    texts = []
    for flags in ["", ""]:
        texts.append(screen(browser, run(browser, flags)))
    if texts[0] != texts[1] or "✓" not in texts[0]:
        found.append("two runs after each other differ")
    # Keys alone: a button, and the field of flags.
    open_page(browser, f"{address}/lab00.html")
    browser.execute_script("document.querySelector('button.runs').focus()")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    panel = browser.find_element("css selector", "section.run")
    settle(browser, panel)
    browser.switch_to.active_element.send_keys(" --ranks 3", Keys.ENTER)
    settle(browser, panel)
    if "3 threads" not in screen(browser, panel):
        found.append(f"keys alone change no flags: {screen(browser, panel)[:300]}")
    found += loud(browser.get_log("browser"))
    return [f"on the page: {what}" for what in found]


def try_line(browser, address):
    """A line that the model of lab03's run continues, and one that it cannot read, by keys alone."""
    open_page(browser, f"{address}/lab03.html")
    panel = run(browser, "--steps 20 --layers 1 --embd 32 --eval-iters 2")
    place = panel.find_element("css selector", ".goes-on")
    told = []
    for line in ["My lord", "a # b"]:
        field = place.find_element("css selector", "input")
        field.clear()
        field.send_keys(line, Keys.ENTER)
        said, shown = place.find_element("css selector", "[role=status]"), place.find_element("css selector", "pre")
        WebDriverWait(browser, PATIENCE, 0.05).until(lambda _: place.find_element("css selector", "button").is_enabled())
        told.append((said.text, shown.text.strip()))
    (first, sample), (refused, nothing) = told
    right = first == "" and sample.startswith("My lord") and len(sample) > 20 and "'#'" in refused and nothing == ""
    return [] if right else [f"lines are told {told}"]


def try_formats(browser, address):
    """The one program on a page that is no lab's, up to its first table: those after it train for a minute."""
    open_page(browser, f"{address}/sixteen-bits.html")
    panel = run(browser, "", wait=False)
    WebDriverWait(browser, PATIENCE, 0.1).until(lambda _: "gradients become 0" in screen(browser, panel))
    shown = screen(browser, panel)
    browser.execute_script("arguments[0].querySelectorAll('button')[1].click()", panel)
    page = (ROOT / "book/outputs/formats-zeros.txt").read_text()
    # What is lost is the same, to a tenth of a percent.
    table = lambda text: [line.split() for line in text.splitlines() if line.strip().startswith(("bf16 ", "fp16 ", "fp8 "))]
    return [] if table(shown)[-4:] == table(page) else [f"formats on its page: {shown[-600:]}"]


# A thread asks the page, and is slow to begin waiting; the page has answered, and is slow to wake it: so the thread waits for its
# next answer when that wake-up comes. On a busy machine both happen by chance.
LATE = """
    const late = `for (const [name, milliseconds] of [["wait", 1], ["notify", 3]]) {
        const inTime = Atomics[name];
        Atomics[name] = (...given) => {
            for (const until = performance.now() + milliseconds; performance.now() < until;);
            return inTime(...given);
        };
    }`;
    (0, eval)(late);
    const Plain = Worker;
    Worker = function (script) {
        return new Plain(URL.createObjectURL(new Blob([late, `importScripts("${script}")`])));
    };
"""


def try_late(browser, address):
    """Wake-ups that come too late to wake for the answer that they belong to."""
    open_page(browser, f"{address}/lab08.html")
    browser.execute_script(LATE)
    panel = run(browser, "--steps 20")
    shown = screen(browser, panel)
    return [] if panel.get_attribute("data-exit") == "0" and "✗" not in shown else [f"with late wake-ups: {shown[-400:]}"]


def try_plain_server(browser, address):
    """A server that sends no headers, as most static hosts: a service worker adds them, and the page is loaded once more."""
    open_page(browser, f"{address}/lab00.html")
    if browser.execute_script("return crossOriginIsolated"):
        return ["the plain server sends headers"]
    wait = WebDriverWait(browser, PATIENCE, ignored_exceptions=[WebDriverException])
    browser.find_element("css selector", "button.runs").click()
    wait.until(lambda browser: browser.execute_script("return crossOriginIsolated"))
    wait.until(lambda browser: browser.find_elements("css selector", "button.runs"))
    panel = run(browser, "")
    shown = screen(browser, panel)
    # The worker lets a redirect pass: hosts send one for a folder, some for every page.
    browser.get(f"{address}/run")
    if "worker.js" not in browser.page_source:
        return [f"a redirect on a plain server ends in {browser.page_source[:300]}"]
    return [] if "✓" in shown else [f"on a plain server: {shown[:300]}"]


def answer(browser, place, fields):
    """Types an answer into a form, by keys alone, and returns what the page says of it."""
    inputs = place.find_elements("css selector", "input")
    for field, text in zip(inputs, fields, strict=True):
        field.clear()
        field.send_keys(text)
    browser.execute_script("delete arguments[0].dataset.right", place)
    inputs[-1].send_keys(Keys.ENTER)
    WebDriverWait(browser, PATIENCE, 0.05).until(lambda _: place.get_attribute("data-right"))
    return place.get_attribute("data-right"), place.find_element("css selector", "[role=status]").text


def try_forms(browser, address):
    """Each form on its lab's page: a right answer, a wrong one, one that is none."""
    forms = {exercise["name"] for lab in COURSE for exercise in lab["exercise"] if "form" in exercise}
    found = [f"no answer is known for {name}" for name in forms ^ ANSWERS.keys()]
    for name, (right, wrong) in ANSWERS.items():
        lab = name[:5]
        if not browser.current_url.endswith(f"/{lab}.html"):
            open_page(browser, f"{address}/{lab}.html")
        place = browser.find_element("css selector", f"section.answer:has([data-exercise={name}])")
        check = (ROOT / "labs" / lab / "checks" / f"{name.replace('-', '_')}.rs").read_text()
        # What a check says stands in it, perhaps on two lines, or with a number in it.
        check = " ".join(check.replace("\\\n", " ").split())
        judged, said = answer(browser, place, wrong)
        if judged != "false" or said.removeprefix("Not yet. ")[:30] not in check:
            found.append(f"{name}: {wrong} is told {said!r}")
        judged, said = answer(browser, place, ["?"] * len(wrong))
        if judged != "false":
            found.append(f"{name}: ? is told {said!r}")
        judged, said = answer(browser, place, right)
        if judged != "true" or place.find_element("css selector", "details").get_attribute("hidden") is not None:
            found.append(f"{name}: {right} is told {said!r}")
    return found


def try_without_script(browser, address):
    """A reader without JavaScript finds the question, its answer in a box, and the command of an exercise."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(f"{address}/lab03.html")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    place = browser.find_element("css selector", "section.predict")
    place.find_element("css selector", "summary").click()
    right = [choice["text"] for choice in json.loads(place.find_element("css selector", "script").get_attribute("textContent"))["choices"]
             if not choice["mistake"]]
    shown = place.text
    wrong = [] if shown.count(right[0]) == 2 else [f"without a script: {shown}"]
    exercise = browser.find_element("css selector", "section.answer")
    if "check lab03-replicas" not in exercise.text or exercise.find_element("css selector", "form").is_displayed():
        wrong.append(f"without a script an exercise is {exercise.text}")
    return wrong + ["there is a button that needs a script"] * bool(browser.find_elements("css selector", "button.runs"))


def try_last_page(browser, address):
    """What was predicted on the pages before."""
    browser.get(f"{address}/left-out.html")
    rows = [row.text for row in browser.find_elements("css selector", "section.predictions tbody tr")]
    kept = json.loads(browser.execute_script("return fetch(document.querySelector('section.predictions a').href).then(answer => answer.text())"))
    if len(rows) != len(LABS) or len(kept) != len(rows) or not all("right" in row for row in rows):
        return [f"the last page has {rows}, and its file {kept}"]
    return []


def try_labs(address, programs, labs):
    """The labs, each on its page; and what the last page says of all."""
    wrong = []
    with start(LAPTOP) as browser:
        for lab in labs or LABS:
            wrong += try_lab(browser, address, programs, lab)
        if not labs:
            wrong += try_last_page(browser, address)
            wrong += try_forms(browser, address)
    return wrong


def try_pages(address, plain, programs, is_short):
    """What holds on any lab's page, in other windows, and without the headers of a server."""
    wrong = []
    with start(PHONE) as browser:
        open_page(browser, f"{address}/lab01.html")
        run(browser, "")
        over = browser.execute_script("return document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth")
        wrong += [f"on a phone: {over} pixels too wide"] if over > 0 else []
    if is_short:
        return wrong
    with start(LAPTOP) as browser:
        wrong += try_late(browser, address)
        wrong += try_page(browser, address, programs)
        wrong += try_line(browser, address)
        wrong += try_formats(browser, address)
        wrong += try_without_script(browser, address)
    with start(LAPTOP) as browser:
        wrong += try_plain_server(browser, plain)
    return wrong


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/debug")
    arguments.add_argument("labs", nargs="*", metavar="LAB")
    given = arguments.parse_args()
    programs = given.bin.resolve()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([programs / "workbook", "serve", "--port", str(port)], stdout=subprocess.PIPE, text=True)
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    # As a host of many projects' pages does: below a path.
    site = tempfile.TemporaryDirectory()
    below = pathlib.Path(site.name, "some", "path")
    below.parent.mkdir()
    below.symlink_to(ROOT / "target/book")
    plain = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=site.name))
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    sizes = {name: (ROOT / "target/book/run" / name).stat().st_size for name in MOST_BYTES}
    wrong = [f"{name} has {sizes[name]} bytes, of at most {most}" for name, most in MOST_BYTES.items() if sizes[name] > most]
    try:
        address = re.search(r"http://\S+(?=/)", server.stdout.readline())[0]
        # One browser for the labs, and one for all else: each waits for its ranks.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            labs = pool.submit(try_labs, address, programs, given.labs)
            pages = pool.submit(try_pages, address, f"http://127.0.0.1:{plain.server_port}/some/path", programs, bool(given.labs))
            wrong += labs.result() + pages.result()
    finally:
        server.terminate()
        plain.shutdown()
    sys.exit("\n".join(wrong) if wrong else print("every lab runs on its page"))


if __name__ == "__main__":
    main()
