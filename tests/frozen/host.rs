//! A host built on a frozen interface: takes engines on their tours and prints what came of it as JSON.
//!
//! `frozen-host HOME ID…`: the libraries lie in `HOME/plugins`.

#[allow(dead_code)]
mod session;
mod tour;

use std::path::PathBuf;

use serde_json::Value;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let home = PathBuf::from(arguments.next().expect("a home"));
    let ids = arguments.map(|id| id.into_string().expect("an id"));
    let tours: Value = ids.map(|id| (id.clone(), tour::tour(&home, &id))).collect();
    println!("{tours}");
}
