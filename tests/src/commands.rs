//! `context-engine plugins …` driven as a person drives it, and what it left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::build::{command, library_name, plugin};
use crate::host::{Ran, TestHost};

/// Writes the configuration.
pub fn configure(host: &TestHost, text: &str) {
    fs::write(host.root().join("config.json5"), text).expect("written");
}

/// The configuration as it is.
pub fn config(host: &TestHost) -> String {
    fs::read_to_string(host.root().join("config.json5")).unwrap_or_default()
}

/// Runs `plugins …` with blanks between the arguments.
pub fn plugins(host: &TestHost, args: &str) -> Ran {
    host.run(["plugins"].into_iter().chain(args.split(' ')))
}

/// A command that has to end with this code and say this; the whole of what it said.
#[track_caller]
pub fn says(ran: &Ran, code: i32, words: &[&str]) {
    let said = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, code, "{ran:#?}");
    for word in words {
        assert!(said.contains(word), "expected {word:?} in {ran:#?}");
    }
    assert!(!said.contains("thread '"), "{ran:#?}");
}

/// Who serves, and why it is not the one asked for.
pub fn doctor(host: &TestHost) -> (String, String) {
    let report = host.run(["doctor", "--json"]).json();
    let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
    (text("serves"), text("why"))
}

/// Every file below the home that is the person's, with its bytes.
pub fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below").display().to_string();
            match entry.file_type().expect("a kind").is_dir() {
                true if name != "state" => folders.push(path),
                false if !name.ends_with(".lock") => drop(found.insert(name, fs::read(&path).expect("read"))),
                _ => {}
            }
        }
    }
    found
}

/// The library of an engine of `engines/`, as text.
pub fn library(name: &str) -> String {
    plugin(name).to_str().expect("a path that is text").to_owned()
}

/// Another build of the same engine: a byte behind the end changes nothing but the digest.
pub fn other_build(host: &TestHost, name: &str) -> String {
    let path = host.root().join("other").join(library_name(name));
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, [fs::read(plugin(name)).expect("built"), vec![0]].concat()).expect("written");
    path.to_str().expect("text").to_owned()
}

/// What lies in a folder, but for the lock of the commands.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".lock");
    names.sort();
    names
}

/// Runs the command in this home from within `folder`.
pub fn within(host: &TestHost, folder: &Path, args: &str) -> Ran {
    let mut command = Command::new(command());
    let output = command.args(args.split(' ')).env("CONTEXT_ENGINE_HOME", host.root()).current_dir(folder).output();
    let output = output.expect("the command can be run");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}
