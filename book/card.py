#!/usr/bin/env python3
"""Makes book/card.png: what a chat shows below a link to a page. It is the README's picture, as it stands still, with the title.

Needs what book/browse.py needs. Run it when that picture, `.github/opening-light.svg`, has changed.
"""

import base64
import pathlib

import browse

BOOK = pathlib.Path(__file__).resolve().parent
# The size that readers of heads ask for.
WIDE, HIGH = 1200, 630
PAGE = """<!DOCTYPE html><meta charset=utf-8><style>
body {{ margin: 0; width: {wide}px; height: {high}px; display: grid; place-content: center; justify-items: center; background: #fff; color: #24292f;
  font: 34px system-ui, sans-serif; }}
h1 {{ font-size: 84px; margin: 0; }} p {{ margin: 10px 0 50px; }}
</style><h1>shardlab</h1><p>How large models are trained on many devices, by running it</p>{svg}"""


def main():
    svg = (BOOK.parent / ".github/opening-light.svg").read_text().replace("<svg ", '<svg width="1120" ', 1)
    page = base64.b64encode(PAGE.format(wide=WIDE, high=HIGH, svg=svg).encode()).decode()
    with browse.start(WIDE) as browser:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": WIDE, "height": HIGH, "deviceScaleFactor": 1, "mobile": False})
        # With less motion the picture stands still where all of it is there.
        browse.less_motion(browser, True)
        browser.get(f"data:text/html;base64,{page}")
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    (BOOK / "card.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
