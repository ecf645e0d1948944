//! Hands the target and the compiler to the record: cargo tells them to build scripts only.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").unwrap_or_else(|_| "unknown-target".into());
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("rustc (unknown)", str::trim);
    println!("cargo:rustc-env=CONTEXT_ENGINE_TARGET={target}");
    println!("cargo:rustc-env=CONTEXT_ENGINE_COMPILER={version}");
}
