//! The page in a real browser, where one is installed.
//!
//! Decision: no browser driver. A copy of the page has a second script, which clicks and looks, and then tells what it
//! saw: it keeps the page's policy and adds that script's hash to it. A headless browser of the Chromium family prints what
//! the page has become; Firefox does not, so there the script goes on to an address of this machine with what it saw. Where
//! no browser is found the test says that it was skipped. Run with Chromium 156 and Firefox 140 on Linux; never with
//! another browser or system.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::sample::{self, SHOWN};
use super::{policy, render};

const CHROMIUM: [&str; 7] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome.exe", "msedge.exe"];
const FIREFOX: [&str; 3] = ["firefox-esr", "firefox", "firefox.exe"];
/// A page takes a second or two.
const PATIENCE: Duration = Duration::from_secs(90);

/// Stands before everything else in the page and writes down what should not happen.
const WATCH: &str = r#"
window.wrong = [];
addEventListener("error", (event) => wrong.push("error: " + (event.message ?? event.target)), true);
addEventListener("unhandledrejection", (event) => wrong.push("rejected: " + event.reason));
document.addEventListener("securitypolicyviolation", (event) => {
  wrong.push("policy: " + event.violatedDirective + " " + event.blockedURI);
});
for (const level of ["error", "warn"]) {
  const said = console[level];
  console[level] = (...words) => { wrong.push(level + ": " + words.join(" ")); said.apply(console, words); };
}
"#;

/// Stands after everything else: uses the page, and leaves what it saw in an element.
const USE: &str = r##"
addEventListener("load", () => {
  const one = (selector) => document.querySelector(selector);
  const texts = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
  const page = () => getComputedStyle(document.body).backgroundColor;
  const seen = { title: document.title, cells: texts(".headline .value"), verdicts: texts(".verdict") };
  const first = page();
  one("#theme").click();
  const second = page();
  one("#theme").click();
  seen.themes = [first, second, page()];
  const misses = () => ({
    found: one("#found").textContent,
    boxes: document.querySelectorAll(".group:not([hidden])").length,
    rows: document.querySelectorAll(".miss").length,
    things: texts(".miss .thing").slice(0, 50),
  });
  const set = (selector, value) => {
    one(selector).value = value;
    one(selector).dispatchEvent(new Event("input", { bubbles: true }));
  };
  seen.all = misses();
  set("#search", "PEEK_");
  seen.searched = misses();
  set("#by-engine", "1");
  seen.filtered = misses();
  set("#search", "no such words anywhere");
  seen.none = misses();
  one("#session").value = "2";
  one("#session").dispatchEvent(new Event("change", { bubbles: true }));
  seen.sessions = [...document.querySelectorAll("details.session")].map((panel) => panel.open && !panel.hidden);
  one(".map").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  seen.tip = one("#tip").hidden ? "" : one("#tip").textContent;
  seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.wrong = window.wrong;
  const out = document.createElement("output");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
  if (location.hash) location.href = `http://127.0.0.1:${location.hash.slice(1)}/${encodeURIComponent(out.textContent)}`;
});
"##;

/// The first of these names on the path.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |n| folder.join(n)))
        .find(|file| file.is_file())
}

/// `$CHROME`, or a browser of its family on the path.
fn chromium() -> Option<PathBuf> {
    std::env::var_os("CHROME").map(PathBuf::from).or_else(|| installed(&CHROMIUM))
}

/// Says it past the test runner, which keeps the output of tests that pass.
fn skipped(missing: &str) {
    let _ = writeln!(std::io::stderr().lock(), "skipped: no {missing} on the path, the report was not opened in it");
}

/// Opens the file and returns the page as it has become, and what the browser said.
fn opened(browser: &Path, file: &Path, profile: &Path, window: &str) -> (String, String) {
    let (dom, log) = (profile.with_extension("dom"), profile.with_extension("log"));
    let to = |path: &Path| Stdio::from(std::fs::File::create(path).expect("a file for the output"));
    let mut child = Command::new(browser)
        // The sandbox does not start for root or in containers, where tests run; the page is our own.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
        ])
        .args(["--enable-logging=stderr", "--virtual-time-budget=8000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={window}"))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(to(&dom))
        .stderr(to(&log))
        .spawn()
        .expect("the browser starts");
    let ended = within(&mut child, |child| child.try_wait().expect("the browser can be waited for").map(|_| ()));
    assert!(ended.is_some(), "the browser did not end within {PATIENCE:?}");
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).expect("the output")).into_owned();
    (read(&dom), read(&log))
}

/// Asks until there is an answer or patience ends; then the browser ends too.
fn within<T>(child: &mut Child, mut ask: impl FnMut(&mut Child) -> Option<T>) -> Option<T> {
    let started = Instant::now();
    let mut answer = None;
    while answer.is_none() && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        answer = ask(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    answer
}

/// Opens the file in Firefox and returns what the script saw.
fn told_by_firefox(browser: &Path, file: &Path, profile: &Path) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener that does not wait");
    let port = listener.local_addr().expect("its address").port();
    std::fs::create_dir(profile).expect("a profile");
    // No proxy between this machine and itself, and no pages of its own.
    let settings = "user_pref('network.proxy.type', 0); user_pref('browser.aboutwelcome.enabled', false);";
    std::fs::write(profile.join("user.js"), settings).expect("settings");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-remote", "--profile"])
        .arg(profile)
        .arg(format!("file://{}#{port}", file.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the browser starts");
    let line = within(&mut child, |_| match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(false).expect("a stream that waits");
            stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).expect("a request");
            Some(line)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("the browser cannot be heard: {error}"),
    });
    let line = line.unwrap_or_else(|| panic!("the browser told nothing within {PATIENCE:?}"));
    let path = line.trim_start_matches("GET /").split(' ').next().unwrap_or_default();
    serde_json::from_slice(&unescaped(path)).unwrap_or_else(|error| panic!("{error}: {line:.500}"))
}

/// `%7B` as `{`.
fn unescaped(path: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// The page with the two scripts, allowed by their hashes.
fn watched(page: &str) -> String {
    let allowed = format!("script-src {} {} ", policy::source(WATCH), policy::source(USE));
    page.replacen("script-src ", &allowed, 1)
        .replacen("<title>", &format!("<script>{WATCH}</script><title>"), 1)
        .replacen("</body>", &format!("<script>{USE}</script></body>"), 1)
}

fn seen(dom: &str) -> Value {
    let (_, rest) =
        dom.split_once("<output id=\"seen\">").unwrap_or_else(|| panic!("the script came to its end: {dom:.2000}"));
    let (json, _) = rest.split_once("</output>").expect("the end of the element");
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
    serde_json::from_str(&json).expect("JSON")
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_report_works_in_a_browser_and_asks_the_network_for_nothing() {
    let Some(browser) = chromium() else { return skipped("Chromium") };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.html");
    let page = render(&sample::report(SHOWN));
    std::fs::write(&file, watched(&page)).expect("the page is written");
    for window in ["1280,900", "500,900"] {
        let profile = folder.path().join(format!("profile-{window}"));
        let (dom, log) = opened(&browser, &file, &profile, window);
        assert!(!log.contains("CONSOLE"), "{log}");
        check(&seen(&dom));
    }
}

#[test]
fn the_report_works_in_firefox_too() {
    let Some(browser) = installed(&FIREFOX) else { return skipped("Firefox") };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.html");
    std::fs::write(&file, watched(&render(&sample::report(SHOWN)))).expect("the page is written");
    check(&told_by_firefox(&browser, &file, &folder.path().join("profile")));
}

fn check(seen: &Value) {
    assert_eq!(strings(&seen["wrong"]), [""; 0], "errors, warnings and what the policy forbade");
    assert_eq!(strings(&seen["loaded"]), [""; 0], "requests");
    assert_eq!(seen["title"], "Context engines compared");
    assert_eq!(seen["wide"], 0, "the page does not scroll sideways");

    let cells = strings(&seen["cells"]);
    assert_eq!(cells.len(), 4 * 3 * 8);
    for cell in ["52\u{a0}% best", "6.2\u{a0}%", "95 µs", "$68.36 best"] {
        assert!(cells.contains(&cell), "{cell} in {cells:?}");
    }
    assert_eq!(strings(&seen["verdicts"]).len(), 3);

    let themes = strings(&seen["themes"]);
    assert!(themes[0] == themes[2] && themes[0] != themes[1], "{themes:?}");

    let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
    assert!(number(&seen["all"]["boxes"]) > 8 && number(&seen["all"]["rows"]) == 0, "{}", seen["all"]);
    let things = strings(&seen["searched"]["things"]);
    assert!(number(&seen["searched"]["rows"]) <= 100, "a page of rows at a time");
    assert!(!things.is_empty() && things.iter().all(|thing| thing.contains("peek_")), "{things:?}");
    assert!(
        seen["searched"]["found"].as_str().is_some_and(|found| found.ends_with("misses match")),
        "{}",
        seen["searched"]
    );
    assert!(number(&seen["filtered"]["boxes"]) == 3 && number(&seen["searched"]["boxes"]) > 3, "{}", seen["filtered"]);
    assert_eq!((number(&seen["none"]["boxes"]), number(&seen["none"]["rows"])), (0, 0));

    assert_eq!(seen["sessions"], serde_json::json!([false, false, true, false]));
    assert!(seen["tip"].as_str().is_some_and(|tip| tip.contains("token")), "{}", seen["tip"]);
}

#[test]
fn the_headline_can_be_read_where_scripts_do_not_run() {
    let Some(browser) = chromium() else { return skipped("Chromium") };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.html");
    // The policy alone keeps the page's own script from running.
    let page = render(&sample::report(SHOWN)).replacen("script-src 'sha256-", "script-src 'sha256-A", 1);
    std::fs::write(&file, page).expect("the page is written");
    let (dom, log) = opened(&browser, &file, &folder.path().join("profile"), "1280,900");
    assert!(log.contains("CONSOLE"), "the policy was enforced: {log}");
    for part in [
        "<td data-label=\"Recall\"",
        "class=\"verdict\"",
        "<svg class=\"chart\"",
        "<button id=\"theme\" type=\"button\" aria-pressed=\"false\" hidden",
    ] {
        assert!(dom.contains(part), "{part}");
    }
    assert!(!dom.contains("class=\"miss\""), "rows are made by the script");
}
