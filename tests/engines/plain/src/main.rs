//! An executable, which on most systems looks much like a library.

fn main() {}
