//! The page as a whole: what other people's texts can do in it, what it holds, how large it gets.

use super::*;
use crate::compare::html::sample::{NASTY, SHOWN, SMALL, Size};

#[test]
fn no_text_of_a_session_becomes_markup() {
    let page = render(&sample::report(SHOWN));
    // The data's script and the page's own.
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<img") && !page.contains(NASTY));
    assert!(page.contains(&text(NASTY)));
    assert!(!page.contains(['\u{202e}', '\u{1b}', '\0']));
}

#[test]
fn nothing_in_the_page_leads_outside() {
    let page = render(&sample::report(SHOWN));
    for outside in ["src=\"", "href=\"http", "url(", "@import", "<link", "<iframe", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_in_braces_are_filled_once_and_texts_are_left_alone() {
    let mut report = sample::report(SMALL);
    report.sessions[0].id = "{{script}} {{verdicts}}".to_owned();
    assert!(render(&report).contains("{{script}} {{verdicts}}"));
}

#[test]
fn every_name_in_the_frame_stands_for_something() {
    let report = sample::report(SHOWN);
    let names: Vec<_> = PAGE.split("{{").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0)).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(part(&report, name).is_some_and(|filled| !filled.is_empty()), "{name}");
    }
}

#[test]
fn the_headline_is_there_without_scripts() {
    let page = render(&sample::report(SHOWN));
    let (before, _) = page.split_once("<script type").expect("data");
    for said in ["Take graph-memory-with-a-remarkably-long-name.", "Too little evidence", "How this is decided", "<svg"]
    {
        assert!(before.contains(said), "{said}");
    }
    let charts = before.matches("<svg class=\"chart\"").count();
    assert_eq!(charts, 1 + 4 * 3 * 2);
    assert_eq!(before.matches("</title><desc").count(), charts + 3);
}

#[test]
fn a_report_of_many_sessions_can_be_mailed() {
    let report = sample::report(Size { engines: 2, sessions: 13, calls: 900, misses: 2_500 });
    let page = render(&report);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert!(page.contains("more were left out"));
}

#[test]
fn of_very_many_sessions_the_longest_are_drawn() {
    let mut report = sample::report(Size { sessions: 45, ..SMALL });
    report.sessions[44].tokens = 1;
    report.sessions[3].tokens = 2;
    let page = render(&report);
    assert!(page.contains("Of 45 sessions, the 40 longest are shown here."));
    assert!(page.contains("data-session=\"0\" open") && page.contains("data-session=\"2\""));
    assert!(!page.contains("data-session=\"3\"") && !page.contains("data-session=\"44\""));
}

#[test]
fn an_empty_comparison_is_a_page_too() {
    let mut report = sample::report(SMALL);
    report.sessions.clear();
    report.cells.clear();
    report.prompts.clear();
    report.pooled.clear();
    let page = render(&report);
    assert!(page.contains("No engine can be recommended.") && page.contains("No misses"));
    report.engines.clear();
    report.budgets.clear();
    assert!(render(&report).contains("0 sessions"));
}
