//! Hands the target triple to the crate: cargo tells it to build scripts only.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").unwrap_or_else(|_| "unknown-target".into());
    println!("cargo:rustc-env=CONTEXT_ENGINE_TARGET={target}");
}
