//! Everything that crosses the library boundary.
//!
//! Architecture Invariant: this is the only module of the crate with `unsafe` in it, and the only one whose types have
//! a frozen layout. Inside a major version nothing here changes shape: prefix structs grow at their end, traits grow by
//! methods with a default body, results grow in `extra_json`, the elements of a slice never change.
#![allow(
    unsafe_code,
    non_local_definitions,
    reason = "the StableAbi derive and sabi_trait emit unsafe impls and impls inside const blocks"
)]

pub mod views;
