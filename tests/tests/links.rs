//! Symbolic links: a plugins directory may be one, and what lies in it may not lead out of it.
//!
//! Decision: the directory is resolved once and everything else must stay inside. Public reports behind it: a plugins
//! directory on another disk refused as a whole, and links followed to wherever somebody pointed them.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use context_engine_loader::LoaderError;
use context_engine_tests::build::{library_name, plugin};
use context_engine_tests::host::TestHost;
use context_engine_tests::session::answer;
use serde_json::Value;

#[test]
fn a_plugins_directory_that_is_a_link_is_accepted() {
    let host = TestHost::with(&["alpha"]);
    let disk = host.root().join("disk");
    fs::rename(host.plugins(), &disk).expect("moved");
    symlink("disk", host.plugins()).expect("a link");
    assert!(answer(&host.engine("alpha", Value::Null)).starts_with("alpha"));
    let seen = host.loader().find("alpha").expect("usable").candidate().clone();
    assert_eq!(seen.path, host.plugins().join(library_name("alpha")), "shown as the person named it");
    fs::remove_file(host.plugins()).expect("removed");
    symlink("nowhere", host.plugins()).expect("a link");
    let reason = host.loader().scan().remove(0).expect_err("refused").to_string();
    assert!(reason.contains("the symbolic link cannot be followed"), "{reason}");
}

/// Report H19: links out of the root are followed.
#[test]
fn a_link_out_of_the_plugins_directory_is_refused_with_where_it_leads() {
    let host = TestHost::with(&["beta"]);
    let outside = host.root().join("outside");
    fs::create_dir(&outside).expect("a folder");
    let evil = outside.join("evil.so");
    fs::copy(plugin("alpha"), &evil).expect("copied");
    host.drop_in_folder("alpha", "ships-a-link");
    host.drop_in_folder("alpha", "says-a-link");
    host.drop_in_folder("alpha", "within");
    let at = |path: &str| host.plugins().join(path);
    symlink(&evil, at("alpha.so")).expect("a link");
    fs::rename(at("ships-a-link/lib/engine.so"), outside.join("engine.so")).expect("moved");
    symlink("../../../outside/engine.so", at("ships-a-link/lib/engine.so")).expect("a link");
    fs::rename(at("says-a-link/plugin.json"), outside.join("plugin.json")).expect("moved");
    symlink(outside.join("plugin.json"), at("says-a-link/plugin.json")).expect("a link");
    symlink(host.root().join("outside-folder"), at("whole")).expect("a link");
    fs::create_dir(host.root().join("outside-folder")).expect("a folder");
    fs::copy(at("within/plugin.json"), host.root().join("outside-folder/plugin.json")).expect("copied");
    // Links that stay inside are fine, also between plugin folders.
    fs::rename(at("within/lib/engine.so"), at("within/engine.bin")).expect("moved");
    symlink("../engine.bin", at("within/lib/engine.so")).expect("a link");

    let root = fs::canonicalize(host.root()).expect("a home").display().to_string();
    let verdicts = host.verdicts().into_iter().map(|(name, verdict)| match verdict {
        Ok(plugin) => format!("{name}: {}", plugin.info().id),
        Err(error) => format!("{name}: {}", error.problem.to_string().replace(&root, "HOME")),
    });
    let out = |name: &str, link: &str, target: &str| {
        let folder = Path::new(target).parent().expect("a folder").display();
        format!(
            "{name}: the link HOME/plugins/{link} leads out of the plugins directory, to {target}; copy the file into the \
             directory, or add {folder} to plugins.load.paths"
        )
    };
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [
            out("alpha.so", "alpha.so", "HOME/outside/evil.so"),
            format!("{}: beta", library_name("beta")),
            out("says-a-link", "says-a-link/plugin.json", "HOME/outside/plugin.json"),
            out("ships-a-link", "ships-a-link/lib/engine.so", "HOME/outside/engine.so"),
            out("whole", "whole", "HOME/outside-folder"),
            "within: alpha".to_owned(),
        ]
    );
    // What the message says to do works.
    assert!(host.loader_of(vec![host.plugins(), outside]).scan().iter().flatten().count() >= 2);
}

#[test]
fn deep_chains_and_odd_names_end_and_are_shown_escaped() {
    let host = TestHost::with(&["alpha"]);
    let at = |name: String| host.plugins().join(name);
    symlink(library_name("alpha"), at("chain-0.so".into())).expect("a link");
    for step in 1..60 {
        symlink(format!("chain-{}.so", step - 1), at(format!("chain-{step}.so"))).expect("a link");
    }
    symlink("/etc/hostname", at("out\nside \u{1b}[31m.so".into())).expect("a link");
    let loader = host.loader();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(loader.scan()));
    let found = receive.recv_timeout(Duration::from_secs(60)).expect("links must end");
    assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1, "many names, one file");
    let reasons: Vec<String> =
        found.into_iter().filter_map(Result::err).map(|error: LoaderError| error.to_string()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("Too many levels of symbolic links")), "{reasons:#?}");
    assert!(reasons.iter().any(|reason| reason.contains("out\\nside \\u{1b}[31m.so leads out")), "{reasons:#?}");
    assert!(reasons.iter().all(|reason| !reason.contains(['\n', '\u{1b}'])), "{reasons:#?}");
}
