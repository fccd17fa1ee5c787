//! Every page opened in a real browser: Chromium without a window, as wide as a phone, steered through chromedriver.
//!
//! A page must be silent on the console, show its pictures and formulas, ask nobody for anything, need no sideways scroll,
//! and lead nowhere that is not there.

use super::math::mathml_of_page;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A phone's width, in CSS pixels.
const PHONE: u32 = 400;

/// Only a hang takes this long.
const HANG: Duration = Duration::from_secs(60);

/// What a page says about itself. A listing may scroll inside its own box, but nothing around the page's text may: that
/// box and all around it, of which mdBook lets one scroll, are asked by how much their content is too wide.
const LOOK: &str = "
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
    };";

/// Opens every page of the built book in `built`, whose Markdown is in `sources`, and returns what is wrong. With a
/// folder for `pictures`, leaves each page's picture there, on a phone and on a dark desktop.
pub fn browse(built: &Path, sources: &Path, pictures: Option<&Path>) -> Result<Vec<String>> {
    let built =
        built.canonicalize().with_context(|| format!("no book in {}: run `mdbook build book`", built.display()))?;
    let url = |page: &str| format!("file://{}/{page}.html", built.display());
    let pages = pages(sources)?;
    let mut browser = Browser::start(PHONE)?;
    let (mut wrong, mut ids, mut links) = (Vec::new(), BTreeMap::new(), Vec::new());
    for page in &pages {
        browser.open(&url(page))?;
        let look = browser.run(LOOK)?;
        let mut found = browser.console()?;
        found.iter_mut().for_each(|entry| entry.insert_str(0, "on the console: "));
        found.extend(faults(&look, &std::fs::read_to_string(sources.join(page).with_extension("md"))?)?);
        wrong.extend(found.iter().map(|what| format!("{page}: {what}")));
        ids.insert(url(page), strings(&look["ids"]).collect::<BTreeSet<_>>());
        links.extend(strings(&look["links"]).map(|link| (page, link)));
        if let Some(folder) = pictures {
            browser.picture(&folder.join(format!("{page}-phone.png")))?;
        }
    }
    for (page, link) in links {
        let (file, place) = link.split_once('#').unwrap_or((&link, ""));
        let is_there = match ids.get(file) {
            Some(ids) => place.is_empty() || ids.contains(place),
            None => link.starts_with("https://"),
        };
        if !is_there {
            wrong.push(format!("{page}: a link to {link}, which is not there"));
        }
    }
    if let Some(folder) = pictures {
        drop(browser);
        let mut browser = Browser::start(1280)?;
        for page in &pages {
            browser.open(&url(page))?;
            browser.run("localStorage.setItem('mdbook-theme', 'navy'); return 0")?;
            browser.open(&url(page))?;
            browser.picture(&folder.join(format!("{page}-dark.png")))?;
        }
    }
    Ok(wrong)
}

/// The names of all pages, in alphabetical order.
fn pages(sources: &Path) -> Result<Vec<String>> {
    let files = std::fs::read_dir(sources)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let names = files.iter().filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()));
    let mut pages: Vec<String> = names.filter(|name| name != "SUMMARY").collect();
    pages.sort();
    ensure!(!pages.is_empty(), "no pages in {}", sources.display());
    Ok(pages)
}

/// What is wrong with a page, from what it says about itself ([`LOOK`]) and what it was made of.
fn faults(look: &Value, markdown: &str) -> Result<Vec<String>> {
    let number = |what: &str| look[what].as_f64().unwrap_or(f64::NAN);
    let mut found = Vec::new();
    let formulas = mathml_of_page(markdown)?.matches("<math").count();
    if number("formulas") != formulas as f64 {
        found.push(format!("{} formulas of {formulas}", look["formulas"]));
    }
    if number("over") > 0.0 || number("window") != f64::from(PHONE) {
        found.push(format!("{} pixels too wide for a window of {}", look["over"], look["window"]));
    }
    if number("pictures") > 0.0 {
        found.push(format!("{} drawings are not drawn", look["pictures"]));
    }
    for (kind, what) in [
        ("images", "a missing image"),
        ("flat", "a formula that is not drawn"),
        ("fractions", "a fraction in one line"),
        ("loaded", "asked of the network"),
    ] {
        found.extend(strings(&look[kind]).map(|which| format!("{what}: {which}")));
    }
    let text = look["text"].as_str().unwrap_or_default();
    let rests = ["$$", "\\frac", "{{#", "**"].into_iter().filter(|rest| text.contains(rest));
    found.extend(rests.map(|rest| format!("{rest} is to be seen")));
    Ok(found)
}

fn strings(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|value| value.as_str().map(String::from))
}

/// A browser with one page open; it ends when this is dropped.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// The browser's own, new and empty.
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start(width: u32) -> Result<Browser> {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver =
            command.spawn().context("cannot start chromedriver (Debian: apt install chromium chromium-driver)")?;
        let profile = tempfile::tempdir()?;
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(start.elapsed() < HANG, "chromedriver does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut args: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        .map(String::from)
        .to_vec();
        args.push(format!("--user-data-dir={}", browser._profile.path().display()));
        args.push(format!("--window-size={},1000", width.max(500)));
        let mut options = json!({ "args": args });
        if width == PHONE {
            options["mobileEmulation"] = json!({"deviceMetrics": {"width": PHONE, "height": 800, "pixelRatio": 2.0}});
        }
        let wishes = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let reply = browser.ask("POST", "/session", &json!({"capabilities": {"alwaysMatch": wishes}}))?;
        browser.session = reply["sessionId"].as_str().context("the browser did not start")?.to_string();
        Ok(browser)
    }

    fn open(&mut self, url: &str) -> Result<()> {
        self.of_session("POST", "/url", &json!({ "url": url })).map(|_| ())
    }

    fn run(&mut self, script: &str) -> Result<Value> {
        self.of_session("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// What the page has written to the console since the last call.
    fn console(&mut self) -> Result<Vec<String>> {
        let entries = self.of_session("POST", "/se/log", &json!({"type": "browser"}))?;
        let entries = entries.as_array().cloned().unwrap_or_default();
        let bad = entries.iter().filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        Ok(bad.map(|entry| entry["message"].to_string()).collect())
    }

    fn picture(&mut self, path: &Path) -> Result<()> {
        let shot = json!({"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": true}});
        let reply = self.of_session("POST", "/goog/cdp/execute", &shot)?;
        let data = reply["data"].as_str().context("no picture came back")?;
        std::fs::write(path, base64(data)).with_context(|| format!("cannot write {}", path.display()))
    }

    fn of_session(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        self.ask(method, &path, body)
    }

    /// One request to chromedriver: WebDriver's protocol, JSON over HTTP.
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(HANG))?;
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let reply = read_reply(&mut stream).with_context(|| format!("chromedriver, asked for {path}"))?;
        let value = serde_json::from_slice::<Value>(&reply)?["value"].take();
        if let Some(error) = value["error"].as_str() {
            bail!("chromedriver: {error}: {}", value["message"].as_str().unwrap_or_default());
        }
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.of_session("DELETE", "", &json!({})).ok();
        }
        self.driver.kill().ok();
        self.driver.wait().ok();
    }
}

/// The body of an HTTP reply that states its length.
fn read_reply(stream: &mut impl Read) -> Result<Vec<u8>> {
    let mut reply = Vec::new();
    let mut chunk = [0; 1 << 16];
    loop {
        if let Some(end) = reply.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&reply[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.context("a reply without a length")?.trim().parse()?;
            if reply.len() >= end + 4 + length {
                return Ok(reply[end + 4..end + 4 + length].to_vec());
            }
        }
        match stream.read(&mut chunk)? {
            0 => bail!("the reply ends early"),
            n => reply.extend_from_slice(&chunk[..n]),
        }
    }
}

/// Bytes from their Base64 form.
fn base64(text: &str) -> Vec<u8> {
    let of = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let sextets: Vec<u8> = text.bytes().filter(|&c| c != b'=' && !c.is_ascii_whitespace()).map(of).collect();
    let bits = |four: &[u8]| four.iter().fold(0u32, |bits, &six| bits << 6 | u32::from(six)) << (6 * (4 - four.len()));
    sextets.chunks(4).flat_map(|four| bits(four).to_be_bytes()[1..four.len()].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_page_is_found() {
        let markdown = "Half is $\\frac{1}{2}$.";
        let look = |changes: Value| {
            let mut look = json!({"over": 0, "window": PHONE, "formulas": 1, "pictures": 0, "text": "Half is 1/2."});
            look.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            faults(&look, markdown).unwrap()
        };
        assert_eq!(look(json!({})), [""; 0]);
        for (change, what) in [
            (json!({"formulas": 0}), "0 formulas of 1"),
            (json!({"over": 3}), "3 pixels too wide for a window of 400"),
            (json!({"window": 980}), "0 pixels too wide for a window of 980"),
            (json!({"pictures": 2}), "2 drawings are not drawn"),
            (json!({"images": ["a.png"]}), "a missing image: a.png"),
            (json!({"loaded": ["https://fonts"]}), "asked of the network: https://fonts"),
            (json!({"text": "{{#include x}}"}), "{{# is to be seen"),
        ] {
            assert_eq!(look(change), [what]);
        }
    }

    #[test]
    fn base64_of_all_lengths() {
        for (text, bytes) in [("", ""), ("TQ==", "M"), ("TWE=", "Ma"), ("TWFu", "Man"), ("TWFuTQ==", "ManM")] {
            assert_eq!(base64(text), bytes.as_bytes());
        }
        assert_eq!(base64("+/+/"), [0xfb, 0xff, 0xbf]);
    }

    #[test]
    fn a_reply_is_as_long_as_it_says() {
        let reply = |text: &str| read_reply(&mut text.as_bytes());
        assert_eq!(reply("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}rest").unwrap(), b"{}");
        assert!(reply("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}").is_err());
        assert!(reply("HTTP/1.1 200 OK\r\n\r\n{}").is_err());
    }
}
