//! Writes what is kept beside frozen sources: the interface's layout, and what the engines do in today's host. Run by `tests/frozen/freeze`.

use context_engine_tests::host::TestHost;
use context_engine_tests::tour::tour;
use context_engine_tests::{frozen, layout};
use serde_json::Value;

fn main() -> std::io::Result<()> {
    let version = std::env::args().nth(1).unwrap_or_default();
    let all = frozen::all();
    let Some(frozen) = all.iter().find(|frozen| frozen.version == version) else {
        let message = format!("tests/frozen has no version {version:?}; start tests/frozen/freeze");
        return Err(std::io::Error::other(message));
    };
    frozen.keep("layout.txt", &layout::of_interface())?;
    let tours: Value = frozen.engines().iter().map(|(id, library)| (id.clone(), tour_of(id, library))).collect();
    frozen.keep("tours.json", &format!("{tours:#}\n"))
}

fn tour_of(id: &str, library: &std::path::Path) -> Value {
    let host = TestHost::new();
    host.take(library);
    tour(host.root(), id)
}
